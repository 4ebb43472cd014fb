/**
 * Asks an upstream's own tokenizer for the tokens of a prompt: `/tokenize` of vLLM and SGLang, or
 * `/apply-template` and `/tokenize` of llama-server.
 *
 * Guarantees: a question takes at most `askMs` and never fails. A server that does not count, or
 * counts wrongly, is not asked for a while. An answer with more values than the context window has
 * tokens is not parsed.
 */
import { codeOf, messageOf } from "../../errors.ts";
import { exceededSize, foreignKeysMax, valuesPerKey } from "../../json-size.ts";
import { fieldOf } from "../../objects.ts";
import type { ConversationForms } from "../text/conversation-forms.ts";
import type { Dialect, Fields } from "./dialects.ts";
import type { Answer, Body, UpstreamServer } from "./server.ts";

interface CountRequest {
  kind: Exclude<Dialect["tokenizer"], null>;
  /** Name of the model at the upstream. */
  model: string;
  contextWindow: number;
  /** Normalised further until the chat template accepts them. */
  forms: ConversationForms;
  /** Fields of the chat request that change the template's output. */
  template: Fields;
}

/** "refused": the chat template does not accept the messages in this form. */
type Count = number | "refused";

const askMs = 2000;
const pauseMs = 30_000;
const distrustMs = 600_000;
const refusals: ReadonlySet<number> = new Set([400, 422, 500]);

export class ServerTokenizer {
  readonly #pausedUntilMs = new WeakMap<UpstreamServer, number>();
  /** Servers that have counted a prompt. */
  readonly #counting = new WeakSet<UpstreamServer>();
  readonly #warn: (upstream: string, reason: string) => void;

  constructor(warn: (upstream: string, reason: string) => void) {
    this.#warn = warn;
  }

  /** Returns whether a server is not asked now, because it failed to count or counted wrongly. */
  isPaused(server: UpstreamServer): boolean {
    return performance.now() < (this.#pausedUntilMs.get(server) ?? 0);
  }

  /** Returns the number of tokens, or null if the server did not count. */
  async count(server: UpstreamServer, request: CountRequest, signal: AbortSignal): Promise<number | null> {
    if (this.isPaused(server)) return null;
    const bounded = AbortSignal.any([signal, AbortSignal.timeout(askMs)]);
    try {
      do {
        const count =
          request.kind === "llama-server"
            ? await countAtLlamaServer(server, request, bounded)
            : await countAtTokenize(server, request, bounded);
        if (count !== "refused") {
          this.#counting.add(server);
          return count;
        }
      } while (request.forms.normaliseFurther());
      // Older versions of SGLang count texts but no conversations.
      if (!this.#counting.has(server)) this.#pause(server, "it refuses every conversation");
    } catch (error) {
      // The tokens of a long prompt may be too many. The next prompt may be short.
      const isTooLarge = error instanceof TooLarge || codeOf(error) === "UND_ERR_RES_EXCEEDED_MAX_SIZE";
      const isOfPrompt = isTooLarge && request.forms.characters > foreignKeysMax;
      if (!signal.aborted && !isOfPrompt) this.#pause(server, messageOf(error));
    }
    return null;
  }

  /** Stops asking a server whose count was exceeded. */
  distrust(server: UpstreamServer, reason: string): void {
    this.#pause(server, reason, distrustMs);
  }

  #pause(server: UpstreamServer, reason: string, ms = pauseMs): void {
    if (!this.isPaused(server)) this.#warn(server.name, reason);
    const untilMs = this.#pausedUntilMs.get(server) ?? 0;
    this.#pausedUntilMs.set(server, Math.max(untilMs, performance.now() + ms));
  }
}

async function countAtTokenize(
  server: UpstreamServer,
  { model, contextWindow, forms, template }: CountRequest,
  signal: AbortSignal,
): Promise<Count> {
  const body = () => ({
    ...template,
    ...effortFor(template),
    model,
    messages: forms.current,
    add_generation_prompt: true,
  });
  const answer = await server.ask("/tokenize", bodyOf(forms.characters, body), signal);
  if (refusals.has(answer.status)) return "refused";
  const count = fieldOf(jsonOf(answer, contextWindow), "count");
  if (typeof count !== "number" || !Number.isSafeInteger(count) || count < 1) throw notUnderstood();
  return count;
}

/** For a chat, vLLM itself passes the effort to the template. For a count the caller must. */
function effortFor({ reasoning_effort: effort, chat_template_kwargs: variables }: Fields): Fields {
  if (effort === undefined || variables !== undefined) return {};
  return { chat_template_kwargs: { reasoning_effort: effort } };
}

async function countAtLlamaServer(
  server: UpstreamServer,
  { model, contextWindow, forms, template }: CountRequest,
  signal: AbortSignal,
): Promise<Count> {
  // A router of several models needs the name of one.
  const body = () => ({ ...template, model, messages: forms.current });
  const filled = await server.ask("/apply-template", bodyOf(forms.characters, body), signal);
  if (refusals.has(filled.status)) return "refused";
  const prompt = fieldOf(jsonOf(filled, contextWindow), "prompt");
  if (typeof prompt !== "string") throw notUnderstood();
  const text = () => ({ model, content: prompt, add_special: true, parse_special: true });
  const answer = await server.ask("/tokenize", bodyOf(prompt.length, text), signal);
  const tokens = fieldOf(jsonOf(answer, contextWindow), "tokens");
  if (!Array.isArray(tokens) || tokens.length === 0) throw notUnderstood();
  return tokens.length;
}

function bodyOf(characters: number, fields: () => object): Body {
  return { characters, text: () => JSON.stringify(fields()) };
}

function jsonOf({ status, bytes }: Answer, contextWindow: number): unknown {
  if (status !== 200) throw new Error(`it answered ${status}`);
  const keysMax = Math.max(foreignKeysMax, Math.ceil(contextWindow / valuesPerKey));
  const exceeded = exceededSize(bytes, keysMax);
  if (exceeded !== null) throw new TooLarge(`its answer has too many ${exceeded}`);
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    throw notUnderstood();
  }
}

class TooLarge extends Error {}

function notUnderstood(): Error {
  return new Error("its answer was not understood");
}
