/**
 * The `models` section: what each model is called, where its weights come from, how it is run and what it costs.
 * Fetches and opens nothing. A model without a price is refused: it would be free for everybody.
 */
import type { Price } from "../credits/pricing.ts";
import { OperatorError } from "../errors.ts";
import { parseSource } from "../weights/source.ts";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

export type ThinkTags = readonly [open: string, close: string];

export interface ModelConfig {
  /** What clients call it. */
  id: string;
  engine: "llama";
  /** `default`, an absolute path, `hf:...` or an address; sure to be one that weights/source.ts can read. */
  source: string;
  contextWindow: number;
  /** Sequences decoded together. */
  parallel: number;
  /** Null: as many as suit the machine. */
  threads: number | null;
  gpu: "auto" | "cuda" | "vulkan" | "metal" | "off";
  price: Price;
  /** What opens and closes the model's thinking, null where it does not think. Null as a whole: its template tells. */
  reasoning: { tags: ThinkTags | null } | null;
}

/** At least one, in the order of the configuration. */
export function readModels(root: Section): { id: string; config: ModelConfig | null }[] {
  const rule = { pattern: kind.modelIdPattern, says: kind.modelIdRule };
  const models = root.entries("models", rule, readModel);
  if (models.length === 0) root.problem(root.where, "models is empty; there must be at least one model");
  return models;
}

/** The id also where the rest is wrong, so that plans which name it are not blamed. */
function readModel(id: string, section: Section): { id: string; config: ModelConfig | null } {
  const engine = section.placed("engine", kind.oneOf("llama", "upstream"), {});
  const price = readPrice(section);
  if (engine.value === "upstream") {
    checkUpstream(section);
    section.problem(
      engine.where,
      `${section.path}.engine: upstream is not supported by this version yet, expected llama`,
    );
    return { id, config: null };
  }
  const config: ModelConfig = {
    id,
    engine: "llama",
    source: readSource(section),
    contextWindow: section.value("context_window", kind.whole(128, 16_777_216), { or: 8192 }),
    parallel: section.value("parallel", kind.whole(1, 256), { or: 4 }),
    threads: section.optional("threads", kind.whole(1, 1024)),
    gpu: section.value("gpu", kind.oneOf("auto", "cuda", "vulkan", "metal", "off"), { or: "auto" }),
    price,
    reasoning: section.hasSection("reasoning") ? { tags: section.section("reasoning", readThinkTags) } : null,
  };
  return { id, config };
}

function readPrice(section: Section): Price {
  if (!section.hasSection("price")) {
    section.problem(
      section.where,
      `${section.path}.price is missing: without it the model would be free for everybody; expected ` +
        "price: { prompt: 10, completion: 30 } in whole credits per million tokens (0 where it is meant to be free)",
    );
  }
  const or = section.hasSection("price") ? {} : { or: 0 };
  return section.section("price", (price) => {
    const cachedPrompt = price.optional("cached_prompt", kind.price);
    return {
      prompt: price.value("prompt", kind.price, or),
      completion: price.value("completion", kind.price, or),
      ...(cachedPrompt === null ? {} : { cachedPrompt }),
    };
  });
}

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

/** No tags at all, `tags: []`, say that the model does not think. */
function readThinkTags(section: Section): ThinkTags | null {
  const expects = 'two texts, what opens the thinking and what closes it: ["<think>", "</think>"]';
  const tag = kind.text("a text that is not empty", (value) => value !== "", { standIn: "?" });
  const tags = section.list("tags", tag, { or: [], expects });
  const [open, close, more] = tags.value;
  if (open === undefined && tags.given) return null;
  if (open !== undefined && close !== undefined && more === undefined) return [open.value, close.value];
  section.problem(tags.where, `${section.path}.tags: found ${tags.value.length} texts, expected ${expects}`);
  return null;
}

/** Checked although refused, so that an operator who prepares for the next version learns of mistakes now. */
function checkUpstream(section: Section): void {
  section.value("url", kind.httpUrl);
  section.optional("key", kind.upstreamKey);
  section.value(
    "model",
    kind.text("the model's name at the upstream", (value) => value.trim() !== ""),
  );
  section.optional("context_window", kind.whole(128, 16_777_216));
  if (!section.hasSection("reasoning")) return;
  section.section("reasoning", (reasoning) => {
    if (reasoning.hasSection("tags")) readThinkTags(reasoning);
    reasoning.optional(
      "field",
      kind.text("the name of a field", (value) => /^\w+$/.test(value)),
    );
  });
}
