/**
 * The rows that the store reads under its locks for a batch of operations, and the rows that it
 * writes after the kernel has decided. Pure.
 */
import type { EpochMs } from "../units.ts";
import type {
  AdjustOperation,
  ExtendOperation,
  HoldOperation,
  KeyOperation,
  Operation,
  PlanOperation,
  RefundOperation,
  StateOperation,
  TopupOperation,
} from "./operations.ts";
import type { PlanCatalog } from "./plan.ts";
import type {
  AccountRow,
  ChargeRow,
  GrantRow,
  HoldRow,
  JournalRow,
  KeyRow,
  PastWindows,
  PaymentRow,
} from "./rows.ts";

/**
 * Maximum number of overdue holds that a commit ends, in addition to the holds of its operations.
 * It bounds the time of a commit after a node has died with many holds. 100 holds take about 5 ms.
 */
export const overdueMax = 100;

/**
 * Every row that the operations of a batch can change, read under the lock. The kernel changes
 * copies.
 */
export interface Snapshot {
  nowMs: EpochMs;
  /** All plans of the database, read under the same lock as the clock. */
  plans: PlanCatalog;
  /** Every account that an operation names and that exists. */
  accounts: ReadonlyMap<string, AccountRow>;
  /** By account: why its row contradicts the facts of the database, if it does. */
  problems: ReadonlyMap<string, string>;
  /** By `rowKey(account, id)`: open holds that an operation names, and those of `overdue`. */
  holds: ReadonlyMap<string, HoldRow>;
  /**
   * `rowKey`s of the overdue holds to end, ordered by time, account and id. These are the first
   * `overdueMax` of all accounts on which an operation takes or extends a hold.
   */
  overdue: readonly string[];
  /** Accounts with further overdue holds. */
  unfinished: ReadonlySet<string>;
  /** By `rowKey(account, op)`: entries whose `op` is `opOf` an operation of the batch. */
  journal: ReadonlyMap<string, JournalRow>;
  /** By `rowKey(account, id)`: the charges of the holds that settlements name, in their order. */
  charges: ReadonlyMap<string, readonly ChargeRow[]>;
  /** By key id: the keys that operations name, and those of the holds and charges above. */
  keys: ReadonlyMap<string, KeyRow>;
  /** By payment id: the payments that top-ups and refunds name, of any account. */
  payments: ReadonlyMap<string, PaymentRow>;
  /** By account: the facts for `reverse`, of accounts with a window that starts after `nowMs`. */
  past: ReadonlyMap<string, PastWindows>;
  /** By refund id: the accounts of the refunds that operations name. */
  refunds: ReadonlyMap<string, string>;
}

/**
 * Rows to write, as sets. Accounts and holds are inserted or replaced, keys are replaced, and the
 * others are appended.
 */
export interface Changes {
  accounts: AccountRow[];
  holdsPut: HoldRow[];
  holdsEnded: { account: string; id: string }[];
  journal: JournalRow[];
  grants: GrantRow[];
  charges: ChargeRow[];
  /** Keys of which requests have changed the state. */
  keys: KeyRow[];
  /** Keys of which any field may have changed. They are not in `keys`. */
  keysSet: KeyRow[];
}

/** Operations that their own journal entry identifies. */
type PostedOperation =
  | HoldOperation
  | ExtendOperation
  | TopupOperation
  | AdjustOperation
  | RefundOperation
  | PlanOperation
  | StateOperation
  | KeyOperation;

export function rowKey(account: string, id: string): string {
  return `${account}\n${id}`;
}

/**
 * Returns the `op` of the operation's journal entry, or null if its hold or account identifies it.
 * The store reads this entry, and the kernel posts it.
 */
export function opOf(operation: PostedOperation): string;
export function opOf(operation: Operation): string | null;
export function opOf(operation: Operation): string | null {
  switch (operation.kind) {
    case "hold":
      return operation.hold;
    case "extend":
      return `${operation.hold}/${operation.n}`;
    case "topup":
      return `payment:${operation.payment}`;
    case "refund":
      return `refund:${operation.refund}`;
    case "adjust":
    case "plan":
    case "state":
    case "key":
      return `${operation.kind}:${operation.op}`;
    case "reverse":
    case "open":
    case "settle":
    case "expire":
      return null;
  }
}

/**
 * Reports whether the overdue holds of the account must end first, because the operation needs
 * their credits.
 */
export function endsOverdue({ kind }: Operation): boolean {
  return kind === "hold" || kind === "extend";
}

/** Returns the `op` of a settlement after the expiry of its hold. */
export function lateOp(hold: string): string {
  return `${hold}/late`;
}
