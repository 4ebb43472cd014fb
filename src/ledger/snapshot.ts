/**
 * The rows that the store reads under its locks for a batch of operations, and the rows that it
 * writes after the kernel has decided. Pure.
 */
import type { EpochMs, MicroCredits } from "../units.ts";
import type { EventFact } from "./events.ts";
import type { Operation, PostedOperation } from "./operations.ts";
import type { PlanCatalog } from "./plan.ts";
import type {
  AccountRow,
  AdditionalGrant,
  ChargeRow,
  GrantRow,
  HoldRow,
  JournalRow,
  KeyRow,
  LaterGrantRow,
} from "./rows.ts";

/**
 * Maximum number of overdue holds that a commit ends, in addition to the holds of its operations.
 * It bounds the time of a commit after a node has died with many holds. 100 holds take about 5 ms.
 */
export const overdueMax = 100;

/** The times of a commit. */
export interface Times {
  /**
   * Elapsed time, for holds, limits and sessions. After a clock was set back it goes on, so it may
   * be ahead of every clock.
   */
  nowMs: EpochMs;
  /**
   * Ledger time, for windows, ends and the dates of facts. After a clock was set back it stands.
   */
  atMs: EpochMs;
}

/** The times of a clock that was never set back. */
export function timesAt(ms: EpochMs): Times {
  return { nowMs: ms, atMs: ms };
}

/** A grant with a payment id, of any account. */
export interface PaymentFact {
  account: string;
  seq: number;
  amountMicro: number;
  /** What refunds have returned. */
  refundedMicro: number;
}

/** What is known of a request that has ended. */
export interface EndedRequest {
  charges: readonly ChargeRow[];
  /** The sum of the memos that name it. */
  memosMicro: MicroCredits;
}

/**
 * Every row that the operations of a batch can change, read under the lock. The kernel changes
 * copies.
 */
export interface Snapshot {
  times: Times;
  /** All plans of the database, read under the same lock as the clock. */
  plans: PlanCatalog;
  /** Every account that an operation names and that exists. */
  accounts: ReadonlyMap<string, AccountRow>;
  /** By account: why its row cannot be read, if it cannot. */
  problems: ReadonlyMap<string, string>;
  /** The open grants beyond those in the row, of the accounts whose later grants were needed. */
  later: ReadonlyMap<string, readonly AdditionalGrant[]>;
  /** By `rowKey(account, id)`: open holds that an operation names, and those of `overdue`. */
  holds: ReadonlyMap<string, HoldRow>;
  /**
   * `rowKey`s of the overdue holds to end, ordered by time, account and id. These are the first
   * `overdueMax` of all accounts on which an operation takes or extends a hold.
   */
  overdue: readonly string[];
  /** Accounts with further overdue holds. */
  moreOverdue: ReadonlySet<string>;
  /** By operation id: entries of the operations of the batch, on any account. */
  journal: ReadonlyMap<string, JournalRow>;
  /** By `rowKey(account, id)`: the requests that operations name, if they have charges. */
  ended: ReadonlyMap<string, EndedRequest>;
  /**
   * By key id: the keys that operations name, those of the holds and charges above, and all of an
   * account whose number of keys an operation limits.
   */
  keys: ReadonlyMap<string, KeyRow>;
  /** By payment id. */
  payments: ReadonlyMap<string, PaymentFact>;
}

/**
 * Rows to write, as sets. Accounts and holds are inserted or replaced, keys are replaced, and the
 * others are appended.
 */
export interface Changes {
  accounts: AccountRow[];
  /**
   * The later grants of accounts, as they are now. The store writes what differs from the
   * snapshot.
   */
  later: Map<string, readonly LaterGrantRow[]>;
  holdsPut: HoldRow[];
  holdsEnded: { account: string; id: string }[];
  journal: JournalRow[];
  grants: GrantRow[];
  charges: ChargeRow[];
  /** Keys of which requests have changed the state. */
  keys: KeyRow[];
  /** Keys of which any field may have changed. They are not in `keys`. */
  keysSet: KeyRow[];
  /** Keys to add. They are not in the other lists. */
  keysNew: KeyRow[];
  /** In their order for each account. */
  events: EventFact[];
}

export function rowKey(account: string, id: string): string {
  return `${account}\n${id}`;
}

/**
 * Returns the id under which the operation is in the journal, or null if its account or hold
 * identifies it. Ids count in the installation: those of payments, those of refunds, and those of
 * all other operations together.
 */
export function opOf(operation: PostedOperation): string;
export function opOf(operation: Operation): string | null;
export function opOf(operation: Operation): string | null {
  switch (operation.kind) {
    case "topup":
      return `payment:${operation.payment}`;
    case "refund":
      return `refund:${operation.refund}`;
    default:
      return "op" in operation && operation.op !== undefined ? `operation:${operation.op}` : null;
  }
}

/** Returns what the store has to read and lock for a batch. */
export function readsOf(operations: readonly Operation[]) {
  const reads = {
    accounts: new Set<string>(),
    /** Accounts of which overdue holds end first, because an operation needs their credits. */
    overdueOf: new Set<string>(),
    /** Account and request id. */
    holds: new Map<string, { account: string; id: string }>(),
    /** Requests that may have ended, with their charges and memos. */
    ended: new Map<string, { account: string; id: string }>(),
    /** Account and key id. The keys of the holds are read as well. */
    keys: new Map<string, { account: string; id: string }>(),
    /** Operation ids. */
    ops: new Set<string>(),
    /** Accounts of which all keys are read. */
    keysOf: new Set<string>(),
    payments: new Set<string>(),
  };
  for (const operation of operations) {
    const { account } = operation;
    reads.accounts.add(account);
    const op = opOf(operation);
    if (op !== null) reads.ops.add(op);
    if ("key" in operation) reads.keys.set(rowKey(account, operation.key), { account, id: operation.key });
    if ("workingMax" in operation && operation.workingMax !== undefined) reads.keysOf.add(account);
    if (operation.kind === "issue") {
      if (operation.keysMax !== null) reads.keysOf.add(account);
      const { creator } = operation;
      if (creator !== null) reads.keys.set(rowKey(account, creator.id), { account, id: creator.id });
    }
    if (operation.kind === "topup" || operation.kind === "refund") reads.payments.add(operation.payment);
    const paid = operation.kind === "open" ? operation.additional?.payment : null;
    if (typeof paid === "string") reads.payments.add(paid);
    if ("requestId" in operation && operation.requestId !== null) {
      const named = { account, id: operation.requestId };
      const key = rowKey(account, operation.requestId);
      reads.holds.set(key, named);
      if (operation.kind !== "extend") reads.ended.set(key, named);
    }
    if (operation.kind === "hold" || operation.kind === "extend") reads.overdueOf.add(account);
  }
  return reads;
}
