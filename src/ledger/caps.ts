/**
 * Caps: the most that may be spent on some models in each window of a period, whatever bucket
 * pays.
 *
 * A plan or a key says which caps hold, and its row keeps counters of what was spent. A counter
 * has the name, the period, the alignment and the zone of its cap, so another amount and other
 * models keep it. One that no cap uses stands still. Only charges change counters, so the audit
 * computes them again. Pure: only the given rows change.
 *
 * Everything that open holds hold on the models of a cap counts against its present window. A
 * charge counts in the window of its time.
 */
import type { EpochMs, MicroCredits } from "../units.ts";
import type { CapCounter, CappedRow, KeyCap, RunningModel } from "./cap-rows.ts";
import { isSameRule, type Window, type WindowRule, windowAfter, windowFrom } from "./windows.ts";

/** Most counters of a row: those of four caps, and as many that stand still. */
const countersMax = 8;

interface Cap extends WindowRule {
  /** Tells the caps of a plan or a key apart. By default the period. */
  name: string;
  amountMicro: MicroCredits;
  /** Patterns of model ids, in which `*` stands for any characters. */
  models: readonly string[];
}

/** A cap that holds for a row. Without a counter its first window begins at `sinceMs`. */
export interface HeldCap extends Cap {
  sinceMs: EpochMs;
}

/** A row that counts. An account has no cap of its plan before it got the plan. */
export interface Counting extends Pick<CappedRow, "counters"> {
  planSinceMs?: EpochMs | undefined;
}

interface CountingRow extends CappedRow, Counting {}

/** What a cap allows at one moment. */
export interface CapState extends Cap, Window {
  spentMicro: MicroCredits;
  /** By open holds, and their cost at their checkpoints. */
  heldMicro: MicroCredits;
  costMicro: MicroCredits;
  /** What the window has not spent, including what running requests hold. */
  unspentMicro: MicroCredits;
  /** What a hold can still take. */
  leftMicro: MicroCredits;
}

/** The models of a cap without a list of them. */
export const everyModel: Pick<Cap, "models"> = { models: ["*"] };

/** Reports whether both count the same: amounts and models are no part of it. */
export function isSameCap(
  one: Pick<Cap, "name"> & WindowRule,
  other: Pick<Cap, "name"> & WindowRule,
): boolean {
  return one.name === other.name && isSameRule(one, other);
}

/**
 * Reports whether a pattern names a model. `*` stands for any characters. No regular expression:
 * callers choose patterns, and one with many `*` would take exponential time.
 */
export function isModelOf(pattern: string, model: string): boolean {
  const [first = "", ...others] = pattern.split("*");
  const last = others.pop();
  if (last === undefined) return pattern === model;
  if (!model.startsWith(first)) return false;
  let at = first.length;
  for (const part of others) {
    const found = model.indexOf(part, at);
    if (found === -1) return false;
    at = found + part.length;
  }
  return at + last.length <= model.length && model.endsWith(last);
}

export function covers({ models }: Pick<Cap, "models">, model: string): boolean {
  return models.some((pattern) => isModelOf(pattern, model));
}

/** Returns the counter of a cap in the window of `atMs`. Nothing is spent yet in a new window. */
export function counterAt({ counters, planSinceMs = 0 }: Counting, cap: HeldCap, atMs: EpochMs): CapCounter {
  const { name, every, align, timezone } = cap;
  const sinceMs = Math.max(cap.sinceMs, planSinceMs);
  const known = counters.find((counter) => isSameCap(counter, cap));
  // A cap that comes back after the window has ended begins anew.
  const isKept = known !== undefined && known.untilMs > sinceMs;
  if (isKept && known.untilMs > atMs) return known.every === every ? known : { ...known, every };
  const last = isKept ? known : windowFrom(cap, sinceMs);
  const { fromMs, untilMs, anchorMs } = last.untilMs > atMs ? last : windowAfter(cap, last, atMs);
  return { name, every, align, timezone, fromMs, untilMs, anchorMs, spentMicro: 0 };
}

/** Returns what requests hold on the models of a cap, and their cost at their checkpoints. */
export function runningOf(
  { running }: Pick<CappedRow, "running">,
  cap: Pick<Cap, "models">,
): Omit<RunningModel, "model"> {
  let [heldMicro, costMicro] = [0, 0];
  for (const each of running) {
    if (!covers(cap, each.model)) continue;
    heldMicro += each.heldMicro;
    costMicro += each.costMicro;
  }
  return { heldMicro, costMicro };
}

export function capStateOf(row: CountingRow, cap: HeldCap, atMs: EpochMs): CapState {
  const { name, every, align, timezone, amountMicro, models } = cap;
  const { spentMicro, fromMs, untilMs, anchorMs } = counterAt(row, cap, atMs);
  const { heldMicro, costMicro } = runningOf(row, cap);
  const unspentMicro = Math.max(0, amountMicro - spentMicro);
  const leftMicro = Math.max(0, unspentMicro - heldMicro);
  // Written out, because each decision about a request makes them.
  return {
    name,
    every,
    align,
    timezone,
    amountMicro,
    models,
    fromMs,
    untilMs,
    anchorMs,
    spentMicro,
    heldMicro,
    costMicro,
    unspentMicro,
    leftMicro,
  };
}

/** The row of an account or a key with the caps that hold for it. */
export interface Capped {
  of: "plan" | "key";
  row: CountingRow;
  caps: readonly HeldCap[];
}

/** The state of a cap of a plan or a key. */
export interface CapRoom extends CapState, Pick<Capped, "of"> {}

/** Returns the state of each cap that covers the model. */
export function roomsOf(capped: readonly Capped[], model: string, atMs: EpochMs): CapRoom[] {
  const rooms: CapRoom[] = [];
  for (const { of, row, caps } of capped)
    for (const cap of caps) if (covers(cap, model)) rooms.push({ ...capStateOf(row, cap, atMs), of });
  return rooms;
}

/** Returns the most that all caps let a request take. */
export function mostOf(rooms: readonly CapRoom[]): MicroCredits {
  return rooms.reduce((most, { leftMicro }) => Math.min(most, leftMicro), Infinity);
}

/** Adds to what running requests of a model hold, and to their cost. */
export function addRunning(
  row: Pick<CappedRow, "running">,
  model: string,
  { heldMicro = 0, costMicro = 0 }: Partial<Omit<RunningModel, "model">>,
): void {
  if (heldMicro === 0 && costMicro === 0) return;
  const known = row.running.find((each) => each.model === model) ?? { model, heldMicro: 0, costMicro: 0 };
  const sum = { model, heldMicro: known.heldMicro + heldMicro, costMicro: known.costMicro + costMicro };
  const others = row.running.filter((each) => each.model !== model);
  row.running = sum.heldMicro === 0 && sum.costMicro === 0 ? others : [...others, sum];
}

/**
 * Counts what grants paid for a model, in the windows of `atMs`. Counters that no cap uses go when
 * their window has ended, or, the first ones first, when there are too many.
 */
export function chargeCaps(
  row: Counting,
  caps: readonly HeldCap[],
  { model, paidMicro, atMs }: { model: string; paidMicro: MicroCredits; atMs: EpochMs },
): void {
  if (paidMicro === 0) return;
  const charged: CapCounter[] = [];
  for (const cap of caps) {
    if (!covers(cap, model)) continue;
    const counter = counterAt(row, cap, atMs);
    charged.push({ ...counter, spentMicro: counter.spentMicro + paidMicro });
  }
  if (charged.length === 0) return;
  const isUsed = (counter: CapCounter) => caps.some((cap) => isSameCap(counter, cap));
  const others = row.counters.filter(
    (counter) =>
      !charged.some((each) => isSameCap(counter, each)) && (counter.untilMs > atMs || isUsed(counter)),
  );
  while (others.length + charged.length > countersMax) {
    others.splice(
      others.findIndex((counter) => !isUsed(counter)),
      1,
    );
  }
  row.counters = [...others, ...charged];
}

/**
 * Returns the caps of a list that replaces another one. A cap that counts the same keeps its
 * beginning, and the others begin at `atMs`.
 */
export function replacedCaps(
  before: readonly KeyCap[],
  after: readonly Omit<KeyCap, "sinceMs">[],
  atMs: EpochMs,
): KeyCap[] {
  return after.map((cap) => ({
    ...cap,
    sinceMs: before.find((each) => isSameCap(each, cap))?.sinceMs ?? atMs,
  }));
}
