/**
 * The `models` section: name, source, engine, limits and price of each model.
 *
 * A model without a price is refused, because it would be free for everybody.
 */

import type { RequestDefaults } from "../chat/catalog.ts";
import { contextWindowMax } from "../chat/engine.ts";
import type { ThinkTags } from "../engines/text/thinking-filter.ts";
import { dialectOf, dialects, templateTokensDefault } from "../engines/upstream/dialects.ts";
import { OperatorError } from "../errors.ts";
import type { Price } from "../ledger/pricing.ts";
import { parseSource } from "../model-files/source.ts";
import { given } from "../objects.ts";
import { readEngineEnvironment } from "./engine-environment.ts";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

/** Upper bound for concurrent requests to one upstream server. */
const parallelMost = 65_536;
/** About 4,000 tokens of English, half of the default window. */
const systemPromptCharactersMax = 16_384;
/** One tebibyte. */
const pausedBytesMax = 2 ** 40;

type AnyModelConfig = ReturnType<typeof readCommon>;
export type LlamaModelConfig = AnyModelConfig & ReturnType<typeof readLlama>;
type UpstreamModelConfig = AnyModelConfig & ReturnType<typeof readUpstream>;
export type ModelConfig = LlamaModelConfig | UpstreamModelConfig;

/** Returns at least one model, in the order of the configuration. */
export function readModels(root: Section): ModelConfig[] {
  const rule = { what: "model", pattern: kind.modelIdPattern, says: kind.modelIdRule };
  return root.entries("models", rule, (id, section) => readModel(id, section));
}

/** Null replaces an invalid engine, because the engine determines the other keys. */
const engineKind: kind.Kind<"llama" | "upstream" | null> = {
  ...kind.oneOf("llama", "upstream"),
  standIn: null,
};

function readModel(id: string, section: Section): ModelConfig {
  const engine = section.value("engine", engineKind);
  const common = readCommon(id, section);
  if (engine === "upstream") return { ...common, ...readUpstream(section) };
  if (engine === "llama") return { ...common, ...readLlama(section, readSource(section)) };
  section.ignoreRest();
  return { ...common, ...readLlama(section, sourceKind.standIn) };
}

function readCommon(id: string, section: Section) {
  return {
    /** Name that clients use. */
    id,
    /** Place of the model in the configuration, such as `inkwell.yaml:14`, for messages. */
    where: section.where,
    price: readPrice(section),
    contextWindow: section.value("context_window", kind.whole(128, contextWindowMax), { or: 8192 }),
    /** Limit of completion tokens for one answer. Null: what the context window leaves. */
    outputTokensMax: section.optional("max_output_tokens", kind.whole(1, contextWindowMax)),
    /** Used if a request does not set these values. */
    defaults: section.section("defaults", readDefaults),
    /** Stands before messages without a system message. Null: nothing is added. */
    systemPrompt: section.optional("system_prompt", systemPromptKind),
  };
}

/** `source` is `default`, an absolute path, `hf:...` or a URL. */
function readLlama(section: Section, source: string) {
  const loadSeconds = section.optional("load_seconds", kind.whole(1, 86_400));
  return {
    engine: "llama" as const,
    source,
    /** Answers decoded together. */
    parallel: section.value("parallel", kind.whole(1, 256), { or: 4 }),
    /** Null: depends on the machine. */
    threads: section.optional("threads", kind.whole(1, 1024)),
    /** Memory for the states of paused answers. 0: a resumed answer is always evaluated again. */
    pausedBytesMax: section.value("paused_bytes", kind.whole(0, pausedBytesMax), { or: 2 ** 30 }),
    gpu: section.value("gpu", kind.oneOf("auto", "cuda", "vulkan", "metal", "off"), { or: "auto" }),
    /** Time limit for loading the model file. Null: depends on its size. */
    loadMs: loadSeconds === null ? null : loadSeconds * 1000,
    /** Complete environment of the model's process. */
    environment: readEngineEnvironment(section),
    /** Null: detected from the template. Null tags: the model does not think. */
    reasoning: section.optionalSection("reasoning", (each) => ({ tags: readThinkTags(each) })),
  };
}

function readPrice(section: Section): Price {
  if (!section.hasSection("price")) {
    section.problem(
      section.where,
      `${section.path}.price is missing: without it the model would be free for everybody; expected ` +
        "price: { prompt: 20000, completion: 100000 } in whole credits per million tokens (0 if it should be free)",
    );
  }
  const or = section.hasSection("price") ? {} : { or: 0 };
  return section.section("price", (price) => {
    const cachedPrompt = price.optional("cached_prompt", kind.price);
    return {
      prompt: price.value("prompt", kind.price, or),
      completion: price.value("completion", kind.price, or),
      ...given({ cachedPrompt }),
    };
  });
}

/** The ranges are those of the public API. */
function readDefaults(section: Section): RequestDefaults {
  return given({
    temperature: section.optional("temperature", kind.decimal(0, 2)),
    topP: section.optional("top_p", kind.decimal(0, 1)),
    topK: section.optional("top_k", kind.whole(0, 2_147_483_647)),
    // Nobody wants a model that repeats itself by default, so it is not negative.
    frequencyPenalty: section.optional("frequency_penalty", kind.decimal(0, 2)),
    maxTokens: section.optional("max_tokens", kind.whole(1, contextWindowMax)),
  });
}

const systemPromptKind = kind.text(
  `a text of 1 to ${systemPromptCharactersMax} characters that is not blank (leave the key out for no system prompt)`,
  (value) => value.trim() !== "" && value.length <= systemPromptCharactersMax && value.isWellFormed(),
);

const sourceKind = kind.text(
  "default, the path of a .gguf file, hf:owner/repository/file.gguf, or https://...",
  (value) => value.trim() !== "",
  { standIn: "default" },
);

function readSource(section: Section): string {
  const written = section.placed("source", sourceKind);
  try {
    return parseSource(written.value).kind === "path" ? section.resolve(written) : written.value;
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    section.problem(written.where, `${section.path}.source: ${error.message}`);
    return sourceKind.standIn;
  }
}

/** An empty list, `tags: []`, means that the model does not think. */
function readThinkTags(section: Section, { required = true } = {}): ThinkTags | null {
  const expects = 'two texts, the start and the end of the thinking: ["<think>", "</think>"]';
  const tag = kind.text("a text that is not empty", (value) => value !== "", { standIn: "?" });
  const { values, where, given: isGiven } = section.list("tags", tag, expects);
  const [open, close, more] = values;
  if (open === undefined && (isGiven || !required)) return null;
  if (open !== undefined && close !== undefined && more === undefined) return [open, close];
  section.problem(where, `${section.path}.tags: found ${values.length} texts, expected ${expects}`);
  return null;
}

function readUpstream(section: Section) {
  const seconds = kind.whole(1, 3600);
  const modelName = kind.text("the model's name at the upstream", (value) => value.trim() !== "");
  const dialect = section.value("dialect", kind.oneOf(...dialects), { or: "compatible" });
  const parallel = section.value("parallel", kind.whole(1, parallelMost), { or: 64 });
  return {
    engine: "upstream" as const,
    /** At least one server. All offer the same model. */
    urls: readUrls(section),
    key: section.optional("key", kind.upstreamKey),
    /** Name of the model at the upstream. */
    model: section.value("model", modelName),
    dialect,
    /** Most tokens that the chat template adds to a prompt as a whole. */
    templateTokens: section.value("template_tokens", kind.whole(0, 65_536), { or: templateTokensDefault }),
    /** Concurrent requests to each server. */
    parallel,
    /** Number of slots of `parallel` for accounts without a running request. */
    reserved: readReserved(section, parallel),
    connectMs: section.value("connect_seconds", seconds, { or: 5 }) * 1000,
    headersMs: section.value("headers_seconds", seconds, { or: 120 }) * 1000,
    idleMs: section.value("idle_seconds", seconds, { or: 60 }) * 1000,
    /** Whether stop sequences are sent. They are always matched here as well. */
    sendStop: section.value("send_stop", kind.flag, { or: dialectOf(dialect).sendsStop }),
    /** Whether callers get the server's own sentence about a rejected request. */
    passErrors: section.value("pass_errors", kind.flag, { or: false }),
    /** Null: the model is not known to think. */
    reasoning: section.optionalSection("reasoning", readUpstreamReasoning),
  };
}

/**
 * Default: an eighth, which admits a new account within a second in most cases and costs the
 * others little.
 */
function readReserved(section: Section, parallel: number): number {
  const reserved = section.placed("reserved", kind.whole(0, parallelMost - 1), {
    or: parallel === 1 ? 0 : Math.max(1, Math.floor(parallel / 8)),
  });
  if (reserved.value >= parallel) {
    section.problem(
      reserved.where,
      `${section.path}.reserved: found ${reserved.value}, expected less than parallel, which is ${parallel}`,
    );
  }
  return reserved.value;
}

const upstreamUrl = kind.text(
  "a URL that begins with http:// or https:// and ends before /chat/completions, such as https://llm.example/v1 (set the key with key)",
  (value) => {
    if (kind.httpUrl.read(value, true) === undefined) return false;
    const { pathname, username, search, hash } = new URL(value);
    return !/\/chat\/completions\/*$/.test(pathname) && username === "" && search === "" && hash === "";
  },
  // The URL may contain a password.
  { standIn: "http://localhost", secret: true },
);

/** Reads one `url` or several `urls`. */
function readUrls(section: Section): string[] {
  const url = section.optional("url", upstreamUrl);
  const urls = section.list(
    "urls",
    upstreamUrl,
    'a list of URLs of servers that offer the same model: ["http://a:8000/v1", "http://b:8000/v1"]',
  );
  if (url !== null && urls.given) {
    section.problem(urls.where, `${section.path}: found both url and urls, expected one of them`);
  } else if (url === null && urls.values.length === 0) {
    section.problem(section.where, `${section.path}.url is missing; expected ${upstreamUrl.expects}`);
  }
  return url === null ? urls.values : [url];
}

function readUpstreamReasoning(section: Section) {
  const field = section.optional(
    "field",
    kind.text("the name of a field", (value) => /^\w+$/.test(value)),
  );
  const hidden = section.value("hidden", kind.flag, { or: false });
  const tags = readThinkTags(section, { required: field === null && !hidden });
  return { field, tags, opened: section.value("opened", kind.flag, { or: false }), hidden };
}
