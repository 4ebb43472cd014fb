/**
 * The store on PostgreSQL: what any number of nodes share.
 *
 * Guarantees that what it has answered to a write is committed as durably as the server is set to commit
 * (synchronous_commit is its business; on by default), that every read sees every write answered before it, on this
 * node or another, and that commits which share an account are decided in the order in which they were sent. Those
 * that share none run side by side, each on a connection of its own.
 *
 * A database that cannot be reached makes every call a `StoreUnavailableError` until it can be again; connections are
 * made anew as they are needed. The two reads that callers wait for, of a key and of a balance, are tried again first,
 * for as long as the ledger does it with commits.
 */
import type { AccountSnapshot } from "../../ledger/balance.ts";
import type { Decision, Operation } from "../../ledger/operations.ts";
import type { Plans } from "../../ledger/plan.ts";
import { retry } from "../../ledger/retry.ts";
import type { AccountRow, HoldRow, JournalRow, KeyRow, UsageRow } from "../../ledger/rows.ts";
import type { EpochMs } from "../../units.ts";
import type { AuditReport } from "../audit.ts";
import type { NodeRegistry } from "../nodes.ts";
import type {
  AccountsQuery,
  FoundKey,
  HoldsQuery,
  HoldTotals,
  JournalQuery,
  Store,
  UsageQuery,
} from "../store.ts";
import { auditDatabase } from "./audit.ts";
import { type ConnectionPool, commitPool, readPool } from "./connection.ts";
import { PostgresLedger } from "./ledger.ts";
import { postgresNodes } from "./nodes.ts";
import { PostgresKeys, PostgresLists, type ReadPools } from "./reads.ts";
import { prepareSchema } from "./schema.ts";

/** Commits of one node at the same time. Two hide the way to the database; more make smaller commits (docs/decisions/0008). */
export const commitQueues = 2;
/** One more for the accounts that are committed on their own. */
const commitConnectionsMax = commitQueues + 1;

/** Before an operation is sent, or a key or balance read, again: a server that starts anew, or another that takes over, is back in some seconds. */
export const commitRetriesMs = [10, 50, 250, 1000, 2000, 4000, 8000] as const;
/** Where the attempts themselves take their time: a server that is gone without a word. */
export const commitGiveUpMs = 15_000;

export interface PostgresStoreOptions {
  /** `postgres://USER:PASSWORD@HOST:5432/DATABASE`, with what libpq allows after a question mark. */
  url: string;
  plans: Plans;
  /** For tests: instead of the clock of the database. */
  now?: () => EpochMs;
}

/** Makes the tables where they are missing. Throws an OperatorError where the database will not do. */
export async function openPostgresStore({ url, plans, now }: PostgresStoreOptions): Promise<PostgresStore> {
  await prepareSchema(url);
  return new PostgresStore(url, plans, now ?? null);
}

export class PostgresStore implements Store {
  readonly #url: string;
  readonly #now: (() => EpochMs) | null;
  readonly #reads: ReadPools;
  readonly #commits: ConnectionPool;
  readonly #ledger: PostgresLedger;
  readonly #keys: PostgresKeys;
  /** The processes on this database. */
  readonly nodes: NodeRegistry;
  readonly #lists: PostgresLists;
  /** The last commit that was sent on each account, while it is under way. */
  readonly #last = new Map<string, Promise<unknown>>();
  readonly #underWay = new Set<Promise<unknown>>();
  readonly #closing = new AbortController();
  #closed: Promise<void> | null = null;

  constructor(url: string, plans: Plans, now: (() => EpochMs) | null) {
    this.#url = url;
    this.#now = now;
    this.#reads = {
      lookups: readPool(url, "lookups"),
      service: readPool(url, "service"),
      lists: readPool(url, "lists"),
      keyChanges: readPool(url, "keyChanges"),
    };
    this.#commits = commitPool(url, commitConnectionsMax);
    this.#ledger = new PostgresLedger(this.#commits, plans, now);
    this.#keys = new PostgresKeys(this.#reads);
    this.#lists = new PostgresLists(this.#reads, now);
    this.nodes = postgresNodes(this.#reads.service);
  }

  commit(operations: readonly Operation[]): Promise<Decision[]> {
    return this.#during(() => this.#inTurn(operations));
  }

  /** After every commit that was sent before and shares an account. */
  async #inTurn(operations: readonly Operation[]): Promise<Decision[]> {
    const accounts = new Set(operations.map((operation) => operation.account));
    const before = [...accounts].map((account) => this.#last.get(account));
    const turn = Promise.allSettled(before).then(() => this.#ledger.commit(operations));
    for (const account of accounts) this.#last.set(account, turn);
    try {
      return await turn;
    } finally {
      for (const account of accounts) {
        if (this.#last.get(account) === turn) this.#last.delete(account);
      }
    }
  }

  findKey(hash: string): Promise<FoundKey | null> {
    return this.#during(() => this.#retry(() => this.#keys.find(hash)));
  }

  addKey(key: KeyRow): Promise<boolean> {
    return this.#during(() => this.#keys.add(key));
  }

  keyById(id: string): Promise<KeyRow | null> {
    return this.#during(() => this.#keys.byId(id));
  }

  keys(account?: string): Promise<KeyRow[]> {
    return this.#during(() => this.#keys.list(account));
  }

  revokeKey(id: string, atMs: EpochMs): Promise<KeyRow | null> {
    return this.#during(() => this.#keys.revoke(id, atMs));
  }

  snapshot(account: string): Promise<AccountSnapshot | null> {
    return this.#during(() => this.#retry(() => this.#lists.snapshot(account)));
  }

  accounts(query: AccountsQuery): Promise<AccountRow[]> {
    return this.#during(() => this.#lists.accounts(query));
  }

  usage(query: UsageQuery): Promise<UsageRow[]> {
    return this.#during(() => this.#lists.usage(query));
  }

  journal(account: string, query: JournalQuery): Promise<JournalRow[]> {
    return this.#during(() => this.#lists.journal(account, query));
  }

  holds(query: HoldsQuery): Promise<HoldRow[]> {
    return this.#during(() => this.#lists.holds(query));
  }

  holdTotals(): Promise<HoldTotals> {
    return this.#during(() => this.#lists.holdTotals());
  }

  overdueHolds(atMs: EpochMs | null, limit: number): Promise<HoldRow[]> {
    return this.#during(() => this.#lists.overdueHolds(atMs, limit));
  }

  audit(): Promise<AuditReport> {
    return this.#during(() => auditDatabase(this.#url, this.#now?.() ?? null, this.#closing.signal));
  }

  close(): Promise<void> {
    this.#closing.abort();
    this.#closed ??= Promise.allSettled(this.#underWay).then(async () => {
      await Promise.all([this.#commits, ...Object.values(this.#reads)].map((pool) => pool.end()));
    });
    return this.#closed;
  }

  /** A request that arrives while the server is away waits for its key, as it then would for its commit. */
  #retry<T>(read: () => Promise<T>): Promise<T> {
    const policy = { retriesMs: commitRetriesMs, giveUpMs: commitGiveUpMs };
    return retry(read, policy, this.#closing.signal);
  }

  /** What was asked before the store is closed is still answered; what is asked after it is not. */
  async #during<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closed !== null) throw new Error("the store is closed");
    const answer = work();
    this.#underWay.add(answer);
    try {
      return await answer;
    } finally {
      this.#underWay.delete(answer);
    }
  }
}
