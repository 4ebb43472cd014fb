/**
 * Fields of a request that no caller sent, and what a server has against them. A request whose
 * added field is refused is sent again without it, or with the number that the refusal names. The
 * server is then asked so for an hour.
 *
 * Pure. Guarantees: a value of the caller is never changed. A limit of tokens is only lowered, and
 * never left out if the answer is known not to be stopped in time. A model that was believed to
 * report in time, and then did not, goes on to answer without the limit that it refuses.
 */
import { callersParam } from "./error-body.ts";
import type { Objection } from "./failure.ts";

/** Null: the field is left out. A number: the most that is sent. */
export type Corrections = ReadonlyMap<string, number | null>;

export interface AddedFields {
  /** Names in the request. */
  names: readonly string[];
  /** The one of `names` that limits the tokens, or null if the caller asked for a limit. */
  limit: string | null;
  /** The answer cannot be stopped in time, so the limit is needed. */
  needsLimit: boolean;
}

export function addedFields(
  { maxTokens, extra, accountSalt }: { maxTokens: string; extra: object; accountSalt: string | null },
  { isLimited, needsLimit }: { isLimited: boolean; needsLimit: boolean },
): AddedFields {
  const limit = isLimited ? null : maxTokens;
  const optional = [limit, accountSalt].filter((name) => name !== null);
  return { names: ["stream_options", ...Object.keys(extra), ...optional], limit, needsLimit };
}

/** Changes the fields of a request in place. */
export function correctFields(body: Record<string, unknown>, corrections: Corrections): void {
  for (const [name, value] of corrections) {
    const sent = body[name];
    if (value === null) delete body[name];
    else if (typeof sent === "number") body[name] = Math.min(sent, value);
  }
}

/** Returns the part of what was learned that fits a request. */
export function fitting(learned: Corrections, { names, limit, needsLimit }: AddedFields): Corrections {
  return new Map(
    [...learned].filter(
      ([name, value]) => names.includes(name) && !(needsLimit && name === limit && value === null),
    ),
  );
}

interface Correction {
  name: string;
  value: number | null;
  /** Other requests need it too: it depends neither on the prompt nor on a balance. */
  isLasting: boolean;
}

interface RefusedRequest {
  /** Fields that were corrected for it. */
  corrected: ReadonlySet<string>;
  /** Limit of tokens in the request. */
  sentTokens: number;
  /** The objection is to the length of prompt and answer together. */
  isTooLong: boolean;
}

/**
 * Returns how to answer an objection, or null if it is not about an added field or that field has
 * been corrected before. A limit may be lowered again: SGLang first names the most that the model
 * generates, and then what the window leaves.
 */
export function correctionFor(
  objection: Objection,
  { names, limit, needsLimit }: AddedFields,
  { corrected, sentTokens, isTooLong }: RefusedRequest,
): Correction | null {
  const open = names.filter((name) => !corrected.has(name));
  if (limit !== null && (isTooLong || isAbout(objection, limit))) {
    const named = numberIn(objection.text, { sentTokens, isTooLong });
    if (named !== null) return { name: limit, ...named };
    if (needsLimit || !open.includes(limit)) return null;
    return { name: limit, value: null, isLasting: !isTooLong && !tooSmall.test(objection.text) };
  }
  const name = isTooLong ? undefined : open.find((each) => each !== limit && isAbout(objection, each));
  return name === undefined ? null : { name, value: null, isLasting: true };
}

/** Whether an objection is to a field that the caller did not send. */
export function isAboutAdded(objection: Objection, { names }: AddedFields): boolean {
  return names.some((name) => isAbout(objection, name));
}

/** The parameter that a refusal names counts more than its words, which may quote the request. */
function isAbout({ field, param, text }: Objection, name: string): boolean {
  const words = aliases[name] ?? new RegExp(`\\b${name}\\b`);
  if (field === name || (param !== null && words.test(param))) return true;
  const [first = ""] = /\w+/.exec(text) ?? [];
  return param === null && (words.test(first) || !callersParam(first)) && words.test(text);
}

const tokenLimit =
  /\bmax_(?:completion_|new_|output_)?tokens\b|\bmaxOutputTokens\b|\b(?:completion|output|maximum) tokens\b/i;
const tooSmall = /minimum|at least|>=|\bbelow\b|too (?:small|low)/i;
/** Other words for a field in refusals. */
const aliases: Readonly<Record<string, RegExp>> = {
  max_tokens: tokenLimit,
  max_completion_tokens: tokenLimit,
  stream_options: /\bstream_options\b|\binclude_usage\b|\bcontinuous_usage_stats\b/,
};

/**
 * Returns the limit that a refusal of `sentTokens` names, or null. It is the rest of a window or
 * of a balance, or the most that the model generates.
 */
function numberIn(
  said: string,
  { sentTokens, isTooLong }: Pick<RefusedRequest, "sentTokens" | "isTooLong">,
): Pick<Correction, "value" | "isLasting"> | null {
  // vLLM's difference of window and limit, and Gemini's end of a range, which it does not allow.
  const text = said
    .replace(/maximum input length of \d+/, "")
    .replace(/(\d+) \(exclusive\)/, (_, end: string) => String(Number(end) - 1));
  const numbers = [...text.matchAll(wholeNumber)].map(([digits]) => Number(digits.replaceAll(",", "")));
  const left = leftInWindow(numbers, sentTokens) ?? (isTooLong ? leftOfSum(text, sentTokens) : null);
  if (left !== null && /prompt|messages|\binputs?\b|limit/i.test(text))
    return { value: left, isLasting: false };
  const lower = numbers.filter((number) => number > 0 && number < sentTokens);
  if (isTooLong || lower.length === 0 || tooSmall.test(text)) return null;
  return { value: Math.max(...lower), isLasting: !/afford/.test(text) };
}

/** Not the digits of a name such as `gpt-4-0613` or `1.5`. */
const wholeNumber = /(?<![\w.,-])(?:\d{1,3}(?:,\d{3})+|\d{1,15})(?![\w-]|[.,]\d)/g;

/**
 * Finds the prompt and the window in "4096 tokens, you requested 5104 (3008 in the messages, 2096
 * in the completion)" and in "3008 + 2096 > 4096". A window is larger than the prompt, and smaller
 * than prompt and limit together.
 */
function leftInWindow(numbers: readonly number[], sentTokens: number): number | null {
  const found = new Set(numbers);
  const isSum = (promptTokens: number) => found.has(promptTokens + sentTokens);
  const prompt = numbers.find((number) => number > 0 && isSum(number));
  if (prompt === undefined && !found.has(sentTokens)) return null;
  for (const promptTokens of prompt === undefined ? numbers : [prompt]) {
    const windows = numbers.filter(
      (number) => number > promptTokens && number < promptTokens + sentTokens && promptTokens !== sentTokens,
    );
    const window =
      windows.find((number) => number !== sentTokens) ?? (prompt === undefined ? undefined : windows[0]);
    if (window !== undefined) return window - promptTokens;
  }
  return null;
}

/** Cerebras and Moonshot name the window, and prompt and limit together. */
function leftOfSum(text: string, sentTokens: number): number | null {
  const sum = Number(/(?:current length is|requested:) (\d+)/i.exec(text)?.[1]);
  const window = Number(/limit(?: is|:) (\d+)/i.exec(text)?.[1]);
  const left = sentTokens - (sum - window);
  return sum > window && left > 0 ? left : null;
}
