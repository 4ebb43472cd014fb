/**
 * Creates models/miniature.gguf, a language model small enough for the repository. It serves to
 * try out the API without a download, and to test the real engine. Run: node
 * tools/make-miniature.ts
 *
 * The model is not trained. Its weights are computed from the sentences of miniature-corpus.txt:
 *
 * - A token of the corpus is one-hot. The output matrix is a table of log-probabilities for the
 *   last token.
 * - Attention head 0 selects the token before the last: its constant query and key, rotated by
 *   the rotary embedding,
 *   match best at distance 1. It raises words that occurred two places after this token.
 * - Attention head 1 selects the whole context, mainly words of a topic. It raises words of these
 *   topics, so that the
 *   answer relates to the question and a damaged cache is visible in the text.
 * - The word "endless" has its own topic, which prevents the end of the answer, to try out
 *   limits, stops and aborts.
 * - The feed-forward part is zero.
 *
 * Text is tokenized by bytes, so that any text is encoded and decoded without changes. Each word
 * of the corpus is one token. Its few characters outside ASCII take several. Thinking uses other
 * words.
 *
 * The same corpus gives the same bytes on any machine.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { at, f32, gguf, Matrix, meta, q4, q8, roundUp, type Tensor } from "./gguf-file.ts";

/**
 * Returns the alphabet of GPT-2: each byte has one printable character. Printable bytes keep
 * their own.
 */
function byteAlphabet(): string[] {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return String.fromCodePoint(printable ? byte : next++);
  });
}

const alphabet = byteAlphabet();

function spell(text: string): string {
  return [...Buffer.from(text, "utf8")].map((byte) => at(alphabet, byte)).join("");
}

const endOfText = "<|endoftext|>";
const endOfTurn = "<|end|>";
const roles = ["<|system|>", "<|user|>", "<|assistant|>"];
const assistant = "<|assistant|>";
const thinkOpen = "<think>";
const thinkClose = "</think>";

/** The token inside a text and at its start. */
const endlessWords = [spell(" endless"), spell("endless")];

const contextLength = 8192;
/**
 * High enough that the slowest angle stays near zero over the whole context, which head 1 needs.
 */
const ropeBase = 1_000_000;
/**
 * Log-probability of a continuation that the corpus does not have. e^-16 is low enough up to
 * temperature 1.
 */
const floor = 16;
/** Added by head 0 to a word that occurred two places after the token. e^4.5 is about 90. */
const pairBoost = 4.5;
/** Added by head 1 to the words of a topic if the context has only this topic. */
const topicBoost = 4;
/** Log-weight of a word with a topic in head 1, relative to other tokens. e^3 is about 20. */
const topicNotice = 3;
/**
 * The same for the word that requests an endless answer: e^12 outweighs thousands of other words.
 */
const endlessNotice = 12;
/** Subtracted by head 1 from the end of the turn for an endless answer. */
const endlessPenalty = 16;
/**
 * Value of the topic in the embedding. Small beside the 1 of the token, and exact in every
 * storage type.
 */
const topicMark = 1 / 8;
/** Probability of an end after a sentence: an answer has two to three sentences. */
const endProbability = 0.36;
/** Required advantage of distance 1 over any other, in log-weight. e^-18 * 8192 is negligible. */
const attentionMargin = 18;

const chatTemplate = `{%- for message in messages -%}
{%- if message.role not in ['system', 'user', 'assistant'] -%}
{{- raise_exception('unknown role: ' + message.role) -}}
{%- endif -%}
{{- '<|' + message.role + '|>' + message.content + '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|assistant|>' -}}
{%- if enable_thinking -%}
{{- '<think>' -}}
{%- endif -%}
{%- endif -%}`;

/** One sentence as tokens. Each token has its bytes in GPT-2's alphabet. */
interface Sentence {
  topic: string;
  tokens: string[];
}

// --- The corpus and its tokens ---

/** Words include the space before them. Characters outside ASCII are split into bytes. */
function tokensOf(sentence: string): string[] {
  return (sentence.match(/ ?\p{L}+| ?[^\s\p{L}]+/gu) ?? []).flatMap((piece) => {
    const word = /^ ?[A-Za-z]+/.exec(piece)?.[0] ?? "";
    return [...(word === "" ? [] : [spell(word)]), ...spell(piece.slice(word.length))];
  });
}

function readCorpus(text: string): { sentences: Sentence[]; thoughts: Sentence[] } {
  const sentences: Sentence[] = [];
  const thoughts: Sentence[] = [];
  let topic = "";
  for (const line of text.split(/\r?\n/).slice(1)) {
    if (line.startsWith("# ")) topic = line.slice(2);
    else if (topic === "thinking" && line !== "") thoughts.push({ topic, tokens: tokensOf(` ${line}`) });
    else if (line !== "") sentences.push({ topic, tokens: tokensOf(line) });
  }
  const spoken = new Set(sentences.flatMap((sentence) => sentence.tokens));
  const shared = thoughts.flatMap((thought) => thought.tokens).filter((token) => spoken.has(token));
  if (shared.length > 0)
    throw new Error(`thinking must have words of its own, but shares: ${shared.join(" ")}`);
  return { sentences, thoughts };
}

// --- What follows what ---

/** counts[a][b] as sparse maps. */
class Counts {
  readonly rows = new Map<number, Map<number, number>>();

  add(from: number, to: number, times = 1): void {
    const row = this.rows.get(from) ?? new Map<number, number>();
    row.set(to, (row.get(to) ?? 0) + times);
    this.rows.set(from, row);
  }
}

interface Statistics {
  /** By the last token. */
  next: Counts;
  /** By the token before the last, within a sentence. */
  afterNext: Counts;
  /** Words that belong to a single topic, by topic. */
  topicOf: Map<number, number>;
  topicCount: number;
  endlessIds: number[];
  end: number;
  /** First words of answers. */
  openings: number[];
}

function statisticsOf(
  corpus: { sentences: Sentence[]; thoughts: Sentence[] },
  idOf: (token: string) => number,
): Statistics {
  const next = new Counts();
  const afterNext = new Counts();
  const starts = new Counts();
  const learn = (ids: number[]): void => {
    ids.forEach((id, i) => {
      const [one, two] = [ids[i + 1], ids[i + 2]];
      if (one !== undefined) next.add(id, one);
      if (two !== undefined) afterNext.add(id, two);
    });
  };
  for (const { tokens } of corpus.sentences) {
    // The first word of a later sentence has a space before it, so it differs from the token at
    // the start.
    const first = at(tokens, 0);
    const later = [`${at(alphabet, 32)}${first}`, ...tokens.slice(1)];
    learn(tokens.map(idOf));
    learn(later.map(idOf));
    for (const before of [assistant, thinkClose]) next.add(idOf(before), idOf(first));
    starts.add(0, idOf(at(later, 0)));
  }
  const stop = idOf(".");
  for (const [start, times] of starts.rows.get(0) ?? []) next.add(stop, start, times);
  next.add(stop, idOf(endOfTurn), (corpus.sentences.length * endProbability) / (1 - endProbability));
  for (const { tokens } of corpus.thoughts) learn([thinkOpen, ...tokens, thinkClose].map(idOf));

  const topics = [...new Set(corpus.sentences.map((sentence) => sentence.topic))];
  const topicOf = new Map<number, number>();
  const everywhere = new Set<number>();
  for (const { topic, tokens } of corpus.sentences) {
    for (const id of tokens.map(idOf)) {
      const index = topics.indexOf(topic);
      if ((topicOf.get(id) ?? index) !== index) everywhere.add(id);
      topicOf.set(id, index);
    }
  }
  for (const id of everywhere) topicOf.delete(id);
  // The name of a topic is its first word, even if the word is common elsewhere.
  topics.forEach((topic, index) => {
    const [name] = tokensOf(` ${topic}`);
    if (name !== undefined) topicOf.set(idOf(name), index);
  });
  return {
    next,
    afterNext,
    topicOf,
    topicCount: topics.length,
    endlessIds: endlessWords.map(idOf),
    end: idOf(endOfTurn),
    openings: [...(next.rows.get(idOf(assistant)) ?? new Map<number, number>()).keys()],
  };
}

// --- Weights ---

/** Returns the rotary frequencies that distinguish near distances. The slow ones hardly rotate. */
function fastAngles(headSize: number): { f: number; angle: number }[] {
  return Array.from({ length: headSize / 2 }, (_, f) => ({
    f,
    angle: ropeBase ** ((-2 * f) / headSize),
  })).filter(({ angle }) => angle > 0.01);
}

/**
 * Returns their weight in head 0, for which distance 1 beats every other distance in the context
 * by the margin. The score at distance s is the sum over f of weight * cos((s - 1) * angle), over
 * the root of the size.
 */
function previousTokenWeight(headSize: number): number {
  let gapMin = Number.POSITIVE_INFINITY;
  for (let distance = 0; distance < contextLength; distance++) {
    if (distance === 1) continue;
    const gap = fastAngles(headSize).reduce(
      (sum, { angle }) => sum + 1 - Math.cos((distance - 1) * angle),
      0,
    );
    gapMin = Math.min(gapMin, gap);
  }
  return (attentionMargin / gapMin) * Math.sqrt(headSize);
}

const headCount = 2;

function weightsOf(statistics: Statistics, vocabularySize: number) {
  /**
   * Places of tokens in the embedding and in head 0. All tokens outside the corpus share the last
   * place.
   */
  const spoken = [...statistics.next.rows.keys(), ...statistics.endlessIds].sort((a, b) => a - b);
  const slots = new Map(spoken.map((id, slot) => [id, slot]));
  const slotOf = (id: number): number => slots.get(id) ?? spoken.length;
  const headSize = roundUp(spoken.length + 1, 32);
  const topicSize = 32;
  const endless = topicSize - 1;

  // The state, from left to right: this token, its topic, the token before (from head 0), all
  // topics (from head 1).
  const topicStart = headSize;
  const beforeStart = topicStart + topicSize;
  const topicsStart = beforeStart + headSize;
  const width = topicsStart + topicSize;
  const attentionWidth = headCount * headSize;

  const embedding = new Matrix(vocabularySize, width);
  const query = new Matrix(attentionWidth, width);
  const key = new Matrix(attentionWidth, width);
  const value = new Matrix(attentionWidth, width);
  const merge = new Matrix(width, attentionWidth);
  const output = new Matrix(vocabularySize, width);

  for (let id = 0; id < vocabularySize; id++) {
    embedding.set(id, slotOf(id), 1);
    // Bytes of other text also have topics, so that every part of a context has an effect.
    const leaning = slots.has(id) ? undefined : id % statistics.topicCount;
    const topic = statistics.endlessIds.includes(id) ? endless : (statistics.topicOf.get(id) ?? leaning);
    if (topic !== undefined) embedding.set(id, topicStart + topic, topicMark);
  }

  const weight = Math.sqrt(previousTokenWeight(headSize));
  const slowest = 2 * headSize - 2;
  const notice = Math.sqrt(topicNotice * Math.sqrt(headSize));
  const slowKey = (id: number, logWeight: number): void => {
    key.set(slowest, slotOf(id), (notice * logWeight) / topicNotice);
  };
  for (let slot = 0; slot <= spoken.length; slot++) {
    for (const { f, angle } of fastAngles(headSize)) {
      query.set(2 * f, slot, weight);
      key.set(2 * f, slot, weight * Math.cos(angle));
      key.set(2 * f + 1, slot, weight * Math.sin(angle));
    }
    query.set(slowest, slot, notice);
    value.set(slot, slot, 1);
  }
  for (const id of statistics.topicOf.keys()) slowKey(id, topicNotice);
  for (const id of statistics.endlessIds) slowKey(id, endlessNotice);
  for (let topic = 0; topic < topicSize; topic++)
    value.set(headSize + topic, topicStart + topic, 1 / topicMark);
  for (let slot = 0; slot < headSize; slot++) merge.set(beforeStart + slot, slot, 1);
  // Small as well, so that it hardly affects the norm.
  for (let topic = 0; topic < topicSize; topic++) merge.set(topicsStart + topic, headSize + topic, topicMark);

  for (const [from, row] of statistics.next.rows) {
    let total = 0;
    for (const times of row.values()) total += times;
    for (const [to, times] of row) output.set(to, slotOf(from), Math.max(0, Math.log(times / total) + floor));
  }
  // After a token outside the corpus an answer begins, so every context has a continuation.
  for (const slot of [...statistics.endlessIds.map(slotOf), spoken.length]) {
    for (const to of statistics.openings) output.set(to, slot, floor - Math.log(statistics.openings.length));
  }
  for (const [from, row] of statistics.afterNext.rows) {
    for (const to of row.keys()) output.set(to, beforeStart + slotOf(from), pairBoost);
  }
  for (const [id, topic] of statistics.topicOf) output.set(id, topicsStart + topic, topicBoost / topicMark);
  output.set(statistics.end, topicsStart + endless, -endlessPenalty / topicMark);
  return { embedding, query, key, value, merge, output, width, headSize };
}

/**
 * Returns byte-pair merges, the most frequent first, until each word is one token. Every
 * intermediate step must be a token too: a tokenizer loses a piece without one.
 */
function mergesOf(words: readonly string[]): { merges: string[]; steps: string[] } {
  const merges: string[] = [];
  const steps = new Set<string>();
  let spellings = words.map((word) => [...word]);
  for (;;) {
    const pairs = new Map<string, number>();
    for (const pieces of spellings) {
      for (let i = 1; i < pieces.length; i++) {
        const pair = `${pieces[i - 1]} ${pieces[i]}`;
        pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
      }
    }
    const [best] = [...pairs].sort(([a, timesA], [b, timesB]) => timesB - timesA || (a < b ? -1 : 1));
    if (best === undefined) return { merges, steps: [...steps] };
    const [pair] = best;
    const joined = pair.replace(" ", "");
    merges.push(pair);
    steps.add(joined);
    spellings = spellings.map((pieces) => {
      const next: string[] = [];
      for (const piece of pieces) {
        const last = next.at(-1);
        if (last !== undefined && `${last} ${piece}` === pair) next.splice(-1, 1, joined);
        else next.push(piece);
      }
      return next;
    });
  }
}

/** Returns the bytes of the model file. */
export function makeMiniature(corpusText: string): Buffer {
  const corpus = readCorpus(corpusText);
  const controls = [endOfText, endOfTurn, ...roles];
  // As in published reasoning models: separate tokens that decode to plain text.
  const thinkTags = [thinkOpen, thinkClose];
  const space = at(alphabet, 32);
  const openings = corpus.sentences.map((sentence) => space + at(sentence.tokens, 0));
  const seen = [...corpus.sentences, ...corpus.thoughts].flatMap((sentence) => sentence.tokens);
  const words = [...new Set([...seen, ...openings, ...endlessWords])]
    .filter((token) => [...token].length > 1)
    .sort();
  const { merges, steps } = mergesOf(words);
  const vocabulary = [...alphabet, ...controls, ...thinkTags, ...steps];
  const ids = new Map(vocabulary.map((token, id) => [token, id]));
  const idOf = (token: string): number => {
    const id = ids.get(token);
    if (id === undefined) throw new Error(`"${token}" is not in the vocabulary`);
    return id;
  };
  const statistics = statisticsOf(corpus, idOf);
  const weights = weightsOf(statistics, vocabulary.length);
  const { width, headSize } = weights;

  const [normal, control, userDefined] = [1, 3, 4];
  const typeOf = (token: string): number =>
    controls.includes(token) ? control : thinkTags.includes(token) ? userDefined : normal;

  const metadata = {
    "general.architecture": meta.text("llama"),
    "general.name": meta.text("Inkwell Miniature"),
    "general.description": meta.text("Babbles about ink. For trying out the interface and for tests."),
    "general.license": meta.text("apache-2.0"),
    "general.file_type": meta.u32(7),
    "llama.context_length": meta.u32(contextLength),
    "llama.embedding_length": meta.u32(width),
    "llama.block_count": meta.u32(1),
    "llama.feed_forward_length": meta.u32(32),
    "llama.attention.head_count": meta.u32(headCount),
    "llama.attention.head_count_kv": meta.u32(headCount),
    "llama.attention.key_length": meta.u32(headSize),
    "llama.attention.value_length": meta.u32(headSize),
    "llama.attention.layer_norm_rms_epsilon": meta.f32(1e-8),
    "llama.rope.dimension_count": meta.u32(headSize),
    "llama.rope.freq_base": meta.f32(ropeBase),
    "llama.vocab_size": meta.u32(vocabulary.length),
    "tokenizer.ggml.model": meta.text("gpt2"),
    // The only type that splits long runs of one character without recursion and keeps spaces
    // when text is joined.
    // The default model has it too.
    "tokenizer.ggml.pre": meta.text("smollm"),
    "tokenizer.ggml.tokens": meta.texts(vocabulary),
    "tokenizer.ggml.token_type": meta.ints(vocabulary.map(typeOf)),
    "tokenizer.ggml.merges": meta.texts(merges),
    "tokenizer.ggml.bos_token_id": meta.u32(idOf(endOfText)),
    "tokenizer.ggml.eos_token_id": meta.u32(idOf(endOfTurn)),
    "tokenizer.ggml.eot_token_id": meta.u32(idOf(endOfTurn)),
    "tokenizer.ggml.padding_token_id": meta.u32(idOf(endOfText)),
    "tokenizer.ggml.add_bos_token": meta.bool(false),
    "tokenizer.ggml.add_space_prefix": meta.bool(false),
    "tokenizer.chat_template": meta.text(chatTemplate),
  };

  const small = (name: string, matrix: Matrix): Tensor => ({
    name,
    shape: [matrix.columns, matrix.rows],
    type: "q4_0",
    data: q4(matrix),
  });
  const norm = (name: string, scale: number): Tensor => ({
    name,
    shape: [width],
    type: "f32",
    data: f32(new Array<number>(width).fill(scale)),
  });
  // The state starts with a single 1, and head 0 adds a second one. The norms undo the scaling.
  const tensors: Tensor[] = [
    small("token_embd.weight", weights.embedding),
    norm("blk.0.attn_norm.weight", Math.sqrt(1 / width)),
    small("blk.0.attn_q.weight", weights.query),
    small("blk.0.attn_k.weight", weights.key),
    small("blk.0.attn_v.weight", weights.value),
    small("blk.0.attn_output.weight", weights.merge),
    norm("blk.0.ffn_norm.weight", 1),
    small("blk.0.ffn_gate.weight", new Matrix(32, width)),
    small("blk.0.ffn_up.weight", new Matrix(32, width)),
    small("blk.0.ffn_down.weight", new Matrix(width, 32)),
    norm("output_norm.weight", Math.sqrt(2 / width)),
    {
      name: "output.weight",
      shape: [width, vocabulary.length],
      type: "q8_0",
      data: q8(weights.output),
    },
  ];
  return gguf(metadata, tensors);
}

export const corpusPath = fileURLToPath(new URL("./miniature-corpus.txt", import.meta.url));
export const miniaturePath = fileURLToPath(new URL("../models/miniature.gguf", import.meta.url));

if (import.meta.main) writeFileSync(miniaturePath, makeMiniature(readFileSync(corpusPath, "utf8")));
