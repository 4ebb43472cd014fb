/**
 * The port to the events of the database, and what became of them at each endpoint.
 *
 * Commits write events (ledger/events.ts). A step queues them: each endpoint that wants the type
 * of an event gets a row. Rows of endpoints that left the configuration stay until their events
 * are deleted. A process sends an event while it has a claim on its row.
 */
import { randomUUID } from "node:crypto";
import type { Columns, RowOf } from "../ledger/columns.ts";
import type { EventData, EventFact, EventRow, EventType } from "../ledger/events.ts";
import type { EpochMs } from "../units.ts";

/**
 * `skipped`: not to be sent, such as a second mail of a day. `dead`: no attempt of three days
 * succeeded, and there is none any more.
 */
export const deliveryStates = ["pending", "delivered", "skipped", "dead"] as const;
type DeliveryState = (typeof deliveryStates)[number];

export const deliveryColumns = {
  endpoint: "text",
  /** Number of the event. */
  number: "integer",
  /** Empty: the event is about the service. */
  account: "text",
  state: deliveryStates,
  attempts: "integer",
  /** Elapsed time of the next attempt. 0: none has failed since it is pending. */
  nextMs: "ms",
  /** A process has it until this elapsed time. */
  claimedMs: "ms",
  triedMs: "ms?",
  /** Status of the last answer. Null: there was no answer. */
  status: "integer?",
  /** The beginning of the body of the last answer, or why there was none. */
  answer: "text?",
} as const satisfies Columns;
interface DeliveryRow extends RowOf<typeof deliveryColumns> {}

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

/** The oldest pending event of an account. The later ones wait for it. */
interface FirstEvent {
  account: string;
  number: number;
  /** Elapsed time, after its claim and its pause. */
  dueMs: EpochMs;
}

/** An event that this process is to send. */
export interface ClaimedEvent extends Omit<EventRow, "cause">, Pick<DeliveryRow, "number" | "attempts"> {}

export interface Attempt extends Omit<DeliveryRow, "endpoint" | "account" | "claimedMs" | "triedMs"> {
  triedMs: EpochMs;
}

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

/** An endpoint, and what its rows say. */
export const endpointColumns = {
  name: "text",
  pending: "integer",
  dead: "integer",
  /** Accounts whose oldest pending event has failed. */
  failing: "integer",
  /** The next attempt of one of these, in elapsed time. */
  nextMs: "ms?",
  /** The last answer to one of these. */
  problem: "text?",
} as const satisfies Columns;
export interface ListedEndpoint extends RowOf<typeof endpointColumns> {}

export const expiringKeyColumns = {
  account: "text",
  id: "text",
  name: "text?",
  expiresMs: "ms",
} as const satisfies Columns;
interface ExpiringKey extends RowOf<typeof expiringKeyColumns> {}

export interface EventStore {
  /** Returns false if there is an event with this cause. */
  add(event: ServiceEvent): Promise<boolean>;
  /**
   * Gives the next events to the endpoints. Returns whether there may be more. Any number of
   * processes may do it at the same time.
   */
  queue(endpoints: readonly WantedEvents[]): Promise<boolean>;
  /** Lists the first events of accounts from this one on, in the order of the accounts. */
  firsts(endpoint: string, account: string, limit: number): Promise<FirstEvent[]>;
  /** Returns those of the events that no other process has, and that are due. */
  claim(
    endpoint: string,
    numbers: readonly number[],
    nowMs: EpochMs,
    untilMs: EpochMs,
  ): Promise<ClaimedEvent[]>;
  /**
   * Records attempts and ends their claims, unless another process has recorded what became of
   * their events. A failed one does not count, and its claim stays, if it had failed before
   * and an operator has sent the event since it began.
   */
  record(endpoint: string, attempts: readonly Attempt[]): Promise<void>;
  /** Makes one event pending, whatever became of it. Returns false if the endpoint has no row. */
  sendAgain(endpoint: string, id: string): Promise<boolean>;
  /** Makes dead events pending, and ends the pauses of failed ones. Returns how many these are. */
  sendFailed(endpoint: string): Promise<number>;
  deliveries(query: DeliveriesQuery): Promise<ListedDelivery[]>;
  endpoints(of: readonly Pick<WantedEvents, "name">[]): Promise<ListedEndpoint[]>;
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
