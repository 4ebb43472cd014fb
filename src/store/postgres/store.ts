/**
 * The store on PostgreSQL, which any number of nodes share.
 *
 * Guarantees that an answered write is as durable as the server's synchronous_commit makes it (on
 * by default), and that every read sees every write answered before it, on any node. Commits run
 * side by side, each on its own connection. If two share an account, the second one waits for the
 * row.
 *
 * While the database is unreachable, every call rejects with a `StoreUnavailableError`; new
 * connections are opened as they are needed. The two reads that requests wait for, of a key and of
 * a balance, are retried first, for as long as the ledger retries commits.
 */

import type { EventSettings } from "../../ledger/events.ts";
import { retry } from "../../retry.ts";
import type { MachineClock } from "../clock.ts";
import { KeptPlans } from "../kept-plans.ts";
import type { NodeRegistry } from "../nodes.ts";
import { foundKeyOf, type SqlConnections } from "../queries.ts";
import { sqlStoreOn } from "../sql-store.ts";
import type { Store } from "../store.ts";
import { oldMs, PostgresClock, serverTime } from "./clock.ts";
import { PostgresCommits } from "./commits.ts";
import { type ConnectionPool, commitPool, placeOf, readPool, type Settings } from "./connection-pool.ts";
import { openingError } from "./errors.ts";
import { KeyLookups } from "./key-lookups.ts";
import { postgresNodes } from "./nodes.ts";
import { applyPlans } from "./plans.ts";
import { connectionsOn, findSnapshot, postgresDialect } from "./reads.ts";
import { type Migrating, prepareSchema } from "./schema.ts";
import { PostgresUsageSums } from "./usage-sums.ts";

/** Commits of one node at the same time. More make smaller commits (docs/decisions/0008). */
export const commitQueuesMax = 2;
/** A database on the same machine or in the same data centre answers sooner. */
const farMs = 1;
const roundTripsMeasured = 5;

/**
 * Pauses between attempts of a commit, or of a read of a key or balance: a restart or failover
 * takes seconds.
 */
export const commitRetriesMs = [10, 50, 250, 1000, 2000, 4000, 8000] as const;
/** Limit for attempts that take long themselves, because the server is gone without an answer. */
export const commitGiveUpMs = 15_000;

interface PostgresStoreOptions extends Omit<Migrating, "time"> {
  /**
   * `postgres://USER:PASSWORD@HOST:5432/DATABASE`, with the parameters of libpq after a question
   * mark.
   */
  url: string;
  /** Read at each commit: null if it writes no events. Default: null. */
  events?: (() => EventSettings | null) | undefined;
  /** Opens the store although ledger time is far ahead of the clock: who accepts that. */
  clockAcceptedBy?: string | null;
  /** For tests: replaces the clock of the database and the uptime of this node. */
  clock?: MachineClock;
  /** For tests: replaces settings of the connections. */
  settings?: Settings;
  /** Processes that share the connections of one service. Default: 1. */
  workers?: number;
}

interface PostgresStore extends Store {
  /** The processes on this database. */
  readonly nodes: NodeRegistry;
  readonly commitQueues: number;
}

/** Creates missing tables. Throws an OperatorError if the database cannot be used. */
export async function openPostgresStore(options: PostgresStoreOptions): Promise<PostgresStore> {
  const { url, clock = null, settings = {}, events = () => null } = options;
  const { clockAcceptedBy = null, workers = 1 } = options;
  await prepareSchema(url, { ...options, time: serverTime(clock?.clockMs() ?? null) });
  const service = readPool(url, "service", settings);
  try {
    const opened = await PostgresClock.open(service, clock, clockAcceptedBy);
    // Commits of several workers are on their way at the same time.
    const commitQueues = workers > 1 ? 1 : commitQueuesFor(await roundTripMs(service));
    return { ...postgresStoreOn({ url, service, clock: opened, settings, events, workers }), commitQueues };
  } catch (error) {
    await service.end();
    throw openingError(error, placeOf(url), "");
  }
}

/** Returns the time of the fastest of some round trips. Others may wait for this machine. */
async function roundTripMs(pool: ConnectionPool): Promise<number> {
  const times: number[] = [];
  for (let n = 0; n < roundTripsMeasured; n += 1) {
    const beganMs = performance.now();
    await pool.find({ name: "round trip", text: "select" });
    times.push(performance.now() - beganMs);
  }
  return Math.min(...times);
}

/**
 * Returns how many commits a node makes at the same time. Two hide the network of a database that
 * is far. If it is near, one has less work: its commits have twice as many operations.
 */
export function commitQueuesFor(roundTripMs: number): number {
  return roundTripMs < farMs ? 1 : commitQueuesMax;
}

interface OpenedStore {
  url: string;
  service: ConnectionPool;
  clock: PostgresClock;
  settings: Settings;
  events: () => EventSettings | null;
  workers: number;
}

function postgresStoreOn(opened: OpenedStore): Omit<PostgresStore, "commitQueues"> {
  const { url, service, clock, settings, events, workers } = opened;
  const lists = readPool(url, "lists", settings, workers);
  const pools = {
    lookups: readPool(url, "lookups", settings, workers),
    service,
    lists,
    history: lists,
    writes: readPool(url, "writes", settings),
  };
  // One more than queues, for the accounts that are committed on their own.
  const commits = commitPool(url, (workers > 1 ? 1 : commitQueuesMax) + 1, settings);
  const ledger = new PostgresCommits(commits, clock, { events });
  const sums = new PostgresUsageSums(lists, async () => {
    await clock.look();
    return clock.times().atMs;
  });
  const connections = connectionsOn(pools);
  const closing = new AbortController();
  const underWay = new Set<Promise<unknown>>();
  let closed: Promise<void> | null = null;

  /** Calls made before the store is closed are still answered. Later calls are rejected. */
  async function during<T>(work: () => Promise<T>): Promise<T> {
    if (closed !== null) throw new Error("the store is closed");
    const answer = work();
    underWay.add(answer);
    try {
      return await answer;
    } finally {
      underWay.delete(answer);
    }
  }

  /**
   * A request that arrives while the server is away waits for its key, as it then would for its
   * commit.
   */
  const lookUp = <T>(read: () => Promise<T>) =>
    during(() => retry(read, { retriesMs: commitRetriesMs, giveUpMs: commitGiveUpMs }, closing.signal));

  const plans = new KeptPlans((text) => lookUp(() => connections.find("lookups", { text, values: [] })));

  const keys = new KeyLookups((statement) => pools.lookups.find(statement));

  const reads: SqlConnections = {
    find: (purpose, statement) => {
      const find = () => connections.find(purpose, statement);
      return purpose === "lookups" ? lookUp(find) : during(find);
    },
    findPage: (purpose, statement) => during(() => connections.findPage(purpose, statement)),
    write: (...statements) => during(() => connections.write(...statements)),
  };
  const dialect = postgresDialect(() => clock.times().atMs);

  return {
    ...sqlStoreOn(reads, dialect, { plans, events }),
    async findKey(hash) {
      const cells = await lookUp(() => keys.find(hash));
      return cells === undefined ? null : await foundKeyOf(cells, { plans, atMs: dialect.ledgerMs() });
    },
    nodes: postgresNodes(pools.service),
    times: () => clock.times(),
    clock: () => during(() => clock.look(service, oldMs)),
    sumUsage: (timezone) => during(() => sums.step(timezone)),
    commit: (operations) =>
      during(async () => {
        await clock.prepareCommit(commits);
        return await ledger.commit(operations);
      }),
    putAccount: (draft, options) =>
      during(async () => {
        await clock.prepareCommit(commits);
        return await ledger.putAccount(draft, options);
      }),
    applyPlans: (section, options) =>
      during(() => applyPlans(pools.writes, section, { ...options, time: clock.ask().parameter })),
    async accountSnapshot(account) {
      const found = await lookUp(() => findSnapshot(pools.lookups, account, clock));
      if (found === null) return null;
      const { mark, ...snapshot } = found;
      return { ...snapshot, plans: await plans.at(mark) };
    },
    close() {
      closing.abort();
      closed ??= Promise.allSettled(underWay).then(async () => {
        await Promise.all([commits, ...new Set(Object.values(pools))].map((pool) => pool.end()));
      });
      return closed;
    },
  };
}
