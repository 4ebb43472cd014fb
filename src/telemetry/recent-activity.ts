/**
 * Activity of the models of this process within the last 24 hours: requests, errors, tokens, cost
 * and speed. Counts are kept for 5 minutes each, so the memory has a limit for each model. Times
 * and speeds are counted in classes of 10 %, so a percentile is at most 5 % off.
 */
import type { Charge } from "../chat/generate.ts";
import { dayMs, type MicroCredits } from "../units.ts";
import { isFailure, type RequestObserver, type RequestRecord } from "./request-record.ts";

const slotMs = 300_000;
const slotsKept = dayMs / slotMs;

/** Shorter answers say little about the speed. */
const speedTokensMin = 8;

export interface Percentiles {
  median: number;
  /** The value that 5 % of the answers were worse than. */
  worst5: number;
}

/** Sums over a time. */
export interface Activity {
  requests: number;
  /** Requests that the service failed on. */
  errors: number;
  /** Requests that were refused for another reason. */
  refused: number;
  promptTokens: number;
  completionTokens: number;
  costMicro: MicroCredits;
  /** Of streamed answers. Null without one. */
  firstTokenMs: Percentiles | null;
  /** After the first token, of answers of at least 8 tokens. */
  tokensPerSecond: Percentiles | null;
}

type Sums = Omit<Activity, "firstTokenMs" | "tokensPerSecond">;

/** Sums of a time, with the counts for percentiles. */
export interface Slot extends Sums {
  firstTokenMs: Uint32Array | null;
  tokensPerSecond: Uint32Array | null;
}

const noSums: Sums = {
  requests: 0,
  errors: 0,
  refused: 0,
  promptTokens: 0,
  completionTokens: 0,
  costMicro: 0,
};
const sumNames = Object.keys(noSums) as (keyof Sums)[];

const classesPerE = 1 / Math.log(1.1);
const classMin = 0.1;
/** Up to about 3 million: tokens per second, or milliseconds. */
const classes = 180;

export class RecentActivity implements RequestObserver {
  readonly #now: () => number;
  /** Slots by their number, by model. "" is for requests without a known model. */
  readonly #models = new Map<string, Map<number, Slot>>();

  /** `now`: a monotonic time in milliseconds. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  finished(record: RequestRecord): void {
    if (!record.isChat) return;
    const slot = this.#slot(record.model);
    slot.requests += 1;
    if (isFailure(record)) slot.errors += 1;
    else if (record.code !== null) slot.refused += 1;
    const { charge, firstTokenMs } = record;
    if (charge !== null) addCharge(slot, charge);
    if (firstTokenMs !== null) {
      slot.firstTokenMs ??= new Uint32Array(classes);
      count(slot.firstTokenMs, firstTokenMs);
    }
    const tokens = charge?.usage.completionTokens ?? 0;
    const { firstTextMs = null, generatedMs = 0 } = charge?.times ?? {};
    const generatingMs = generatedMs - (firstTextMs ?? generatedMs);
    if (tokens < speedTokensMin || generatingMs <= 0) return;
    slot.tokensPerSecond ??= new Uint32Array(classes);
    count(slot.tokensPerSecond, ((tokens - 1) * 1000) / generatingMs);
  }

  chargedLate(record: RequestRecord, charge: Charge): void {
    addCharge(this.#slot(record.model), charge);
  }

  /** Sums of one model, or of all requests if `model` is null, over the last `withinMs`. */
  over(model: string | null, withinMs: number): Activity {
    return activityOf([this.sumOver(model, withinMs)]);
  }

  /** The same, to be added to those of other processes. */
  sumOver(model: string | null, withinMs: number): Slot {
    const oldest = Math.floor((this.#now() - withinMs) / slotMs) + 1;
    const series =
      model === null ? [...this.#models.values()] : [this.#models.get(model) ?? new Map<number, Slot>()];
    const slots = series.flatMap((each) =>
      [...each].filter(([number]) => number >= oldest).map(([, slot]) => slot),
    );
    return sumOf(slots);
  }

  #slot(model: string | null): Slot {
    const slots = this.#models.get(model ?? "") ?? new Map<number, Slot>();
    this.#models.set(model ?? "", slots);
    const number = Math.floor(this.#now() / slotMs);
    const known = slots.get(number);
    if (known !== undefined) return known;
    for (const old of slots.keys()) if (old <= number - slotsKept) slots.delete(old);
    const slot: Slot = { ...noSums, firstTokenMs: null, tokensPerSecond: null };
    slots.set(number, slot);
    return slot;
  }
}

/** Returns the activity of several processes, or of one. */
export function activityOf(slots: readonly Slot[]): Activity {
  const { firstTokenMs, tokensPerSecond, ...sums } = sumOf(slots);
  return {
    ...sums,
    firstTokenMs: percentiles(firstTokenMs, 0.95),
    tokensPerSecond: percentiles(tokensPerSecond, 0.05),
  };
}

function sumOf(slots: readonly Slot[]): Slot {
  const sum: Slot = { ...noSums, firstTokenMs: null, tokensPerSecond: null };
  for (const slot of slots) {
    for (const name of sumNames) sum[name] += slot[name];
    sum.firstTokenMs = added(sum.firstTokenMs, slot.firstTokenMs);
    sum.tokensPerSecond = added(sum.tokensPerSecond, slot.tokensPerSecond);
  }
  return sum;
}

function added(one: Uint32Array | null, other: Uint32Array | null): Uint32Array | null {
  return one && other ? one.map((found, index) => found + (other[index] ?? 0)) : (one ?? other);
}

function addCharge(slot: Slot, { usage, costMicro }: Charge): void {
  slot.promptTokens += usage.promptTokens;
  slot.completionTokens += usage.completionTokens;
  slot.costMicro += costMicro;
}

function count(counts: Uint32Array, value: number): void {
  const found = Math.floor(Math.log(Math.max(value, classMin) / classMin) * classesPerE);
  const index = Math.min(found, classes - 1);
  counts[index] = (counts[index] ?? 0) + 1;
}

function percentiles(counts: Uint32Array | null, worst: number): Percentiles | null {
  if (counts === null) return null;
  const total = counts.reduce((sum, found) => sum + found, 0);
  return { median: percentile(counts, total, 0.5), worst5: percentile(counts, total, worst) };
}

/** Returns the middle of the class in which the value is. */
function percentile(counts: Uint32Array, total: number, part: number): number {
  let left = Math.max(1, Math.ceil(total * part));
  const index = counts.findIndex((found) => {
    left -= found;
    return left <= 0;
  });
  return classMin * Math.exp((index + 0.5) / classesPerE);
}
