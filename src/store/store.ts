/**
 * What the service asks of its database. The ledger's operations go through `commit`; everything else here is
 * reading, or writing rows that hold no credits (keys).
 */

import { OperatorError } from "../errors.ts";
import type { AccountSnapshot } from "../ledger/balance.ts";
import type { LedgerStore } from "../ledger/ledger.ts";
import type { AccountRow, HoldRow, JournalRow, KeyRow, UsageRow } from "../ledger/rows.ts";
import type { EpochMs, MicroCredits } from "../units.ts";
import type { AuditReport } from "./audit.ts";

/** Most rows of one page of any list. */
export const pageRowsMax = 1000;

/** A key, and the plan that its account is on. */
export interface FoundKey {
  key: KeyRow;
  plan: string;
}

export interface AccountsQuery {
  /** Accounts after this id. */
  after?: string | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

export interface JournalQuery {
  afterSeq?: number | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

export interface UsageQuery {
  account?: string | undefined;
  /** The request id that the client saw. */
  id?: string | undefined;
  /** Id of the key. */
  key?: string | undefined;
  model?: string | undefined;
  /** From this moment on. */
  fromMs?: EpochMs | undefined;
  /** Before this moment. */
  toMs?: EpochMs | undefined;
  /** Rows after this one (its `account` and `seq`), in the order (account, seq). */
  after?: { account: string; seq: number } | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

export interface HoldsQuery {
  account?: string | undefined;
  /** Holds after this one, in the order (account, id). */
  after?: { account: string; id: string } | undefined;
  /** 1 to `pageRowsMax`. */
  limit: number;
}

/** Over all accounts. */
export interface HoldTotals {
  holds: number;
  /** What they hold, parts from windows that have ended included. */
  micro: MicroCredits;
}

/** A list was stopped at its time limit. Sending the same request again is of no use. */
export class ListTooSlowError extends OperatorError {
  constructor(limitMs: number, cause: unknown) {
    super(
      `The list took longer than ${limitMs / 1000} s and was stopped. Ask for less: name an account, take a shorter time between from and to, or go on from the last row that you have (after).`,
      cause,
    );
  }
}

export interface Store extends LedgerStore {
  /** By SHA-256, lower-case hex. Null where there is none. */
  findKey(hash: string): Promise<FoundKey | null>;
  /** Refused (false) where the account does not exist. */
  addKey(key: KeyRow): Promise<boolean>;
  /** Null where there is none. */
  keyById(id: string): Promise<KeyRow | null>;
  /** Of one account, or all; in order of creation. */
  keys(account?: string): Promise<KeyRow[]>;
  /** Sets `revokedMs` once; the row as it is then, null where there is none. */
  revokeKey(id: string, atMs: EpochMs): Promise<KeyRow | null>;

  snapshot(account: string): Promise<AccountSnapshot | null>;
  /** In order of id, after `after`. */
  accounts(query: AccountsQuery): Promise<AccountRow[]>;
  usage(query: UsageQuery): Promise<UsageRow[]>;
  journal(account: string, query: JournalQuery): Promise<JournalRow[]>;
  /** Open holds, also those that nobody has expired yet. */
  holds(query: HoldsQuery): Promise<HoldRow[]>;
  holdTotals(): Promise<HoldTotals>;
  /** Open holds whose `expiresMs` is not after `atMs`; null: now, by the clock that commits go by. Soonest first. */
  overdueHolds(atMs: EpochMs | null, limit: number): Promise<HoldRow[]>;

  /** What always holds, checked over all rows, each rule as they are at one moment; commits do not wait for it. */
  audit(): Promise<AuditReport>;

  /** Resolves when the last write is on disk. Idempotent. */
  close(): Promise<void>;
}
