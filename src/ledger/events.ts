/**
 * Events: what receivers outside of the ledger hear about (docs/operating/events.md). The kernel
 * adds those of accounts to the changes of a commit. The service writes the others. Pure.
 */
import type { EpochMs } from "../units.ts";
import type { Columns, RowOf } from "./columns.ts";

/** The first part of a type is its topic. */
export const eventTypes = [
  "balance.low",
  "balance.exhausted",
  "payment.added",
  "payment.refunded",
  "key.created",
  "key.revoked",
  "key.expiring",
  "account.opened",
  "account.suspended",
  "account.resumed",
  "account.closed",
  "account.plan_changed",
  "link.full",
  "operator.signed_in",
  "operator.key_created",
  "operator.role_given",
  "audit.failed",
  "model.down",
  "model.up",
  "model.out_of_credit",
] as const;
export type EventType = (typeof eventTypes)[number];

export type AccessEvent = Extract<EventType, `operator.${string}`>;
/** Tells receivers that an operator got access. `id`: what has one event of its type only. */
export type TellAccess = (type: AccessEvent, data: Record<string, string>, id: string) => Promise<void>;

/** What a commit writes of events. Without these settings it writes none. */
export interface EventSettings {
  /** Shares of spent credits, in per cent, that are an event. Ascending, each from 1 to 100. */
  thresholdPercents: readonly number[];
}

export type EventData = Readonly<Record<string, string | number | null>>;

/** An event of an account, before it has an id. */
export interface EventFact {
  account: string;
  /** Number of the last fact of the account. */
  seq: number;
  atMs: EpochMs;
  type: EventType;
  data: EventData;
}

export const eventColumns = {
  id: "text",
  /** Null: the event is about the service. The field after it is null then, too. */
  account: "text?",
  seq: "integer?",
  atMs: "ms",
  type: eventTypes,
  /** JSON. */
  data: "text",
  /** Names what has one event only, such as the expiry of a key. */
  cause: "text?",
} as const satisfies Columns;
export interface EventRow extends RowOf<typeof eventColumns> {}
