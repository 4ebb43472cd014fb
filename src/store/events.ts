/**
 * The port to the events of the database, and what became of them at each endpoint.
 *
 * Commits write events (ledger/events.ts). A step queues them: each endpoint that wants the type
 * of an event gets a row. Rows of endpoints that left the configuration stay until their events
 * are deleted. Only one process sends to an endpoint, which has its lease.
 */
import { randomUUID } from "node:crypto";
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { EventData, EventFact, EventRow, EventType } from "../ledger/events.ts";
import type { EpochMs } from "../units.ts";

/**
 * `skipped`: not to be sent, such as a second mail of a day. `set_aside`: the receiver refuses
 * this event, and takes others.
 */
export const deliveryStates = ["pending", "delivered", "skipped", "set_aside"] as const;
type DeliveryState = (typeof deliveryStates)[number];

export const deliveryColumns = {
  endpoint: "text",
  /** Number of the event. */
  number: "integer",
  /** Empty: the event is about the service. */
  account: "text",
  state: deliveryStates,
  attempts: "integer",
  /** Elapsed time. */
  nextMs: "ms",
  triedMs: "ms?",
  /** Status of the last answer. Null: there was no answer. */
  status: "integer?",
  /** The beginning of the body of the last answer, or why there was none. */
  answer: "text?",
} as const satisfies Columns;
interface DeliveryRow extends RowOf<typeof deliveryColumns> {}

export const endpointColumns = {
  name: "text",
  /** The process that sends to it, and the end of its lease in elapsed time. */
  node: "text",
  leaseMs: "ms",
  /** Failed attempts since the last success, and the time of the first of them. */
  failures: "integer",
  failingMs: "ms?",
  /** Elapsed time. Nothing is sent before. */
  nextMs: "ms",
  parkedMs: "ms?",
  /** The last failure. */
  problem: "text?",
} as const satisfies Columns;
export interface EndpointRow extends RowOf<typeof endpointColumns> {}

/** An event that no commit of the ledger causes. */
export interface ServiceEvent {
  type: EventType;
  atMs: EpochMs;
  data: EventData;
  account: string | null;
  cause: string | null;
}

/** An endpoint, and the types of events that it gets. */
export interface WantedEvents {
  name: string;
  types: ReadonlySet<EventType>;
}

/** An event that is due at an endpoint. */
export interface DueEvent extends Omit<EventRow, "cause">, Pick<DeliveryRow, "attempts" | "triedMs"> {
  number: number;
}

export interface Attempt extends Omit<DeliveryRow, "endpoint"> {}

interface DeliveriesQuery {
  endpoint: string;
  account?: string | undefined;
  state?: DeliveryState | undefined;
  /** Deliveries of earlier events than this number, newest first. */
  after?: number | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

export interface ListedDelivery
  extends DeliveryRow,
    Pick<EventRow, "id" | "seq" | "atMs" | "type" | "data"> {}

export interface ListedEndpoint extends EndpointRow {
  pending: number;
  setAside: number;
}

interface ReplayQuery extends WantedEvents {
  /** Events from this time on, and before the other. */
  fromMs: EpochMs;
  toMs: EpochMs;
}

interface ExpiringKey {
  account: string;
  id: string;
  name: string | null;
  expiresMs: EpochMs;
}

export interface EventStore {
  /** Returns false if there is an event with this cause. */
  add(event: ServiceEvent): Promise<boolean>;
  /**
   * Gives the next events to the endpoints. Returns whether there may be more. Any number of
   * processes may do it at the same time.
   */
  queue(endpoints: readonly WantedEvents[]): Promise<boolean>;
  /**
   * Takes or renews the lease of an endpoint. Null: another process has it.
   */
  lead(lease: Pick<EndpointRow, "name" | "node" | "leaseMs">, nowMs: EpochMs): Promise<EndpointRow | null>;
  /** Null: nothing was ever sent to it. */
  endpoint(name: string): Promise<EndpointRow | null>;
  /** Ends the lease of this process. */
  release(name: string, node: string): Promise<void>;
  /**
   * Lists pending events in the order of their numbers. If one of an account waits for its next
   * attempt, no event of that account is listed.
   */
  due(endpoint: string, nowMs: EpochMs, limit: number): Promise<DueEvent[]>;
  /**
   * Records attempts, unless another process has recorded what became of their events. A failed
   * one does not count if an operator has resumed the endpoint since it began.
   */
  record(endpoint: string, attempts: readonly Attempt[]): Promise<void>;
  /**
   * Writes the state of an endpoint. Returns false if another process leads it, or an operator has
   * resumed it since `read` was.
   */
  setEndpoint(row: EndpointRow, read: EndpointRow): Promise<boolean>;
  /** Makes events pending that were set aside since this elapsed time. */
  retrySetAside(endpoint: string, sinceMs: EpochMs): Promise<void>;
  /**
   * Makes events due whose last attempt had no answer, or one that says nothing about the event,
   * unless they had more attempts.
   */
  retryUnanswered(endpoint: string, attemptsMax: number): Promise<void>;
  /** Lets a process send again. Returns false if nothing was ever sent to the endpoint. */
  resume(name: string): Promise<boolean>;
  /** Makes events pending again, and returns how many. */
  replay(query: ReplayQuery): Promise<number>;
  deliveries(query: DeliveriesQuery): Promise<ListedDelivery[]>;
  endpoints(): Promise<ListedEndpoint[]>;
  /** Returns the data of the last events of this type that the account was sent since then. */
  deliveredSince(
    of: Pick<ListedDelivery, "endpoint" | "account" | "type">,
    sinceMs: EpochMs,
  ): Promise<string[]>;
  /** Deletes some of the events before this time, and of those beyond the latest million. */
  prune(beforeMs: EpochMs): Promise<boolean>;
  /** Lists keys that are valid and expire in this time. */
  keysExpiring(afterMs: EpochMs, untilMs: EpochMs): Promise<ExpiringKey[]>;
}

/** Makes the row of an event. */
export function eventRow({ data, ...fact }: EventFact): EventRow {
  return { ...fact, id: newEventId(), data: JSON.stringify(data), cause: null };
}

/** Without a full stop, which separates the parts of what is signed. */
export function newEventId(): string {
  return `evt_${randomUUID().replaceAll("-", "")}`;
}
