/** The parts of rows that caps have. Amounts and times are as in rows.ts. */
import type { Columns, RowOf } from "./columns.ts";
import { alignments } from "./windows.ts";

/** How the windows of a cap follow one another. */
const capRule = {
  name: "text",
  /** ISO 8601 period, alignment and time zone of the windows. */
  every: "text",
  align: alignments,
  timezone: "text",
} as const satisfies Columns;

/** A cap of a key. Those of an account are in its plan. */
export const keyCap = {
  ...capRule,
  amountMicro: "micro",
  /** Patterns of model ids. */
  models: "texts",
  /** When the key got a cap that counts the same. */
  sinceMs: "ms",
  /** It was set by an operator: the holder may only lower the amount. */
  byOperator: "boolean",
} as const satisfies Columns;
export interface KeyCap extends RowOf<typeof keyCap> {}

/** What was spent in a window of a cap. Written by charges alone. */
const capCounter = {
  ...capRule,
  fromMs: "ms",
  untilMs: "ms",
  anchorMs: "ms",
  spentMicro: "micro",
} as const satisfies Columns;
export interface CapCounter extends RowOf<typeof capCounter> {}

/** The open holds on one model. */
const runningModel = {
  model: "text",
  heldMicro: "micro",
  /** Their cost at the last checkpoints. */
  costMicro: "micro",
} as const satisfies Columns;
export interface RunningModel extends RowOf<typeof runningModel> {}

/** What caps of an account or a key have counted, and what they count while requests run. */
export const cappedColumns = {
  counters: { items: capCounter },
  running: { items: runningModel },
} as const satisfies Columns;
export interface CappedRow extends RowOf<typeof cappedColumns> {}

export const uncapped: CappedRow = { counters: [], running: [] };
export const cappedFields = Object.keys(cappedColumns) as (keyof CappedRow)[];
