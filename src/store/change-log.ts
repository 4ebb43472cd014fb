/**
 * Who changed what, over all accounts and the service: the rows of the list, and of changes that
 * no journal has. Their values can be erased, and no seal has them.
 */
import { randomBytes } from "node:crypto";
import type { Columns, RowOf } from "../ledger/columns.ts";
import { buckets, journalKinds } from "../ledger/rows.ts";
import type { EpochMs } from "../units.ts";

/** Changes that no journal has. */
export const otherKinds = [
  "contact",
  "operator_key",
  "person",
  "invitation",
  "link",
  "plans",
  "clock",
  "reload",
  "sign_in",
] as const;

export const changeLogColumns = {
  id: "text",
  atMs: "ms",
  kind: otherKinds,
  by: "text",
  account: "text?",
  /** What was changed, if it is no account: the id of an operator key, a person or a link. */
  subject: "text?",
  /** JSON objects. */
  before: "text?",
  after: "text?",
} as const satisfies Columns;
export interface ChangeLogRow extends RowOf<typeof changeLogColumns> {}

/** Windows begin by time, and changes of amounts follow from other entries. */
export const consequences = ["window", "change"] as const;
const entryKinds = journalKinds.filter((kind) => !consequences.some((each) => each === kind));

export const changeKinds = [...entryKinds, ...otherKinds] as const;
type ChangeKind = (typeof changeKinds)[number];

export const listedColumns = {
  atMs: "ms",
  /** Identifies the row among those of its source. */
  place: "text",
  kind: changeKinds,
  by: "text",
  account: "text?",
  subject: "text?",
  op: "text?",
  bucket: [...buckets, null],
  amountMicro: "micro?",
  /** JSON objects. */
  before: "text?",
  after: "text?",
  outcome: "text?",
} as const satisfies Columns;
export const sources = ["journal", "other"] as const;
export type Source = (typeof sources)[number];

/** A row of the list. */
export interface LoggedChange extends RowOf<typeof listedColumns> {
  source: Source;
}

export type ChangePlace = Pick<LoggedChange, "atMs" | "source" | "place">;

export interface ChangesQuery {
  by?: string | undefined;
  kind?: ChangeKind | undefined;
  account?: string | undefined;
  /** Changes that no journal has, of this operator key, person or link. */
  subject?: string | undefined;
  /** Changes from this time on, and before that one. */
  fromMs?: EpochMs | undefined;
  toMs?: EpochMs | undefined;
  /** Changes after this one, in the order of the list. */
  after?: ChangePlace | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

export interface ChangeLog {
  /** Lists changes, newest first. */
  changes(query: ChangesQuery): Promise<LoggedChange[]>;
  /** Finds the names of keys, operator keys and links by their ids. */
  names(ids: readonly string[]): Promise<Map<string, string>>;
  /** Records a change that no journal has. */
  logChange(row: ChangeLogRow): Promise<void>;
}

/** Returns the row of a change. `id`: two rows with the same id are one change. */
export function changeLogRow(
  change: Pick<ChangeLogRow, "atMs" | "kind" | "by"> & {
    id?: string;
    account?: string | null;
    subject?: string;
    before: object | null;
    after: object | null;
  },
): ChangeLogRow {
  const { account = null, subject = null, before, after, ...rest } = change;
  const json = (value: object | null) => (value === null ? null : JSON.stringify(value));
  return {
    id: randomBytes(8).toString("hex"),
    ...rest,
    account,
    subject,
    before: json(before),
    after: json(after),
  };
}
