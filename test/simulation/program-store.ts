/**
 * The database of a simulated process, in place of src/app/database.ts: each call goes over a
 * simulated connection to the database of the world. Part of the bundle of the program, so its
 * errors are those that the program knows.
 */
import type { OpenDatabase } from "../../src/app/database.ts";
import type { Config } from "../../src/config/load.ts";
import { StoreUnavailableError } from "../../src/errors.ts";
import { Ledger, type LedgerOptions } from "../../src/ledger/ledger.ts";
import type { Plans } from "../../src/ledger/plan.ts";
import type { Times } from "../../src/ledger/snapshot.ts";
import { retry } from "../../src/retry.ts";
import { eventQueriesOn } from "../../src/store/event-queries.ts";
import type { UpgradeListener } from "../../src/store/migrations.ts";
import { PostgresClock } from "../../src/store/postgres/clock.ts";
import type { ConnectionPool } from "../../src/store/postgres/connection-pool.ts";
import type { Cell } from "../../src/store/postgres/rows.ts";
import { commitGiveUpMs, commitQueuesMax, commitRetriesMs } from "../../src/store/postgres/store.ts";
import type { SqlConnections } from "../../src/store/queries.ts";
import { sqliteDialect } from "../../src/store/sqlite/dialect.ts";
import type { Store } from "../../src/store/store.ts";
import type { EpochMs } from "../../src/units.ts";

/** The connection of a process to the database of the world. */
export interface DatabaseConnection {
  /**
   * Resolves with a copy of the answer. `lost` is true if the call may have changed something.
   * Answers may arrive long after the call, or never. `times` gets the clock of the server when
   * the call is done, and returns the times of the call.
   */
  call(target: string, method: string, given: readonly unknown[], times: TimesOf): Promise<Reply>;
}

export type TimesOf = (serverMs: EpochMs) => Times;

export type Reply = { value: unknown } | { error: "unavailable"; mayBeDone: boolean };

declare const simulation: { database: DatabaseConnection };

type Methods<T> = {
  [Name in keyof T as T[Name] extends (...given: never[]) => Promise<unknown> ? Name : never]: T[Name];
};

const policy = { retriesMs: commitRetriesMs, giveUpMs: commitGiveUpMs };

/** Reads that requests wait for are repeated, as the stores do. */
const repeated = ["findKey", "accountSnapshot", "plans"];

async function send(
  target: string,
  method: string,
  given: readonly unknown[],
  times: TimesOf,
): Promise<unknown> {
  const reply = await simulation.database.call(target, method, given, times);
  if ("value" in reply) return reply.value;
  throw new StoreUnavailableError("the database is unavailable at present: simulated", {
    mayBeDone: reply.mayBeDone,
  });
}

/** Sends each call of a method to the object of the same name at the database. */
function remote<T extends object>(
  target: string,
  timesOf: (method: string) => TimesOf,
  local: Omit<T, keyof Methods<T>> & Partial<T>,
): T {
  const { signal } = new AbortController();
  return new Proxy(local as T, {
    get: (own, name) => {
      if (typeof name !== "string" || name === "then" || name in own) return Reflect.get(own, name);
      const isRepeated = repeated.includes(name);
      return (...given: readonly unknown[]) => {
        const once = () => send(target, name, given, timesOf(name));
        return isRepeated ? retry(once, policy, signal) : once();
      };
    },
  });
}

/** Answers the statements of src/store/postgres/clock.ts, which have no times of their own. */
const clockPool: Pick<ConnectionPool, "query"> = {
  query: async ({ name = "", values = [] }) => {
    const answer = await send("clock", name, values, () => {
      throw new Error("this statement has no times");
    });
    return { rows: [answer as Cell[]], columns: [] };
  },
};

/** The times of calls, as src/store/postgres has them. */
function timesBy(clock: PostgresClock): (method: string) => TimesOf {
  const dated = ["commit", "putAccount", "accountSnapshot", "applyPlans"];
  return (method) => {
    if (!dated.includes(method)) return () => clock.times();
    const { asked } = clock.ask();
    return (clockMs) => clock.answered(asked, clockMs);
  };
}

export async function openUpgradedStore(
  { plans }: Config,
  options: LedgerOptions & { onUpgrade: UpgradeListener },
): Promise<OpenDatabase> {
  const pool = clockPool as ConnectionPool;
  const clock = await PostgresClock.open(pool, null, null);
  const timesOf = timesBy(clock);
  const commit = async (method: string, ...given: unknown[]): Promise<unknown> => {
    await clock.prepareCommit(pool);
    return await send("store", method, given, timesOf(method));
  };
  const store = remote<Store>("store", timesOf, {
    commit: (operations) => commit("commit", operations) as ReturnType<Store["commit"]>,
    putAccount: (draft, options) => commit("putAccount", draft, options) as ReturnType<Store["putAccount"]>,
    times: () => clock.times(),
    clock: () => clock.look(),
    commitQueues: commitQueuesMax,
    close: async () => {},
    stopRequests: remote("stopRequests", timesOf, {}),
    operatorKeys: remote("operatorKeys", timesOf, {}),
    dailyCounts: remote("dailyCounts", timesOf, {}),
    // Each of their statements goes to the database by itself.
    events: eventQueriesOn(
      remote<SqlConnections>("statements", timesOf, {}),
      sqliteDialect(() => 0),
    ),
    invitations: remote("invitations", timesOf, {}),
    links: remote("links", timesOf, {}),
  });
  await offer(store, plans);
  return {
    store,
    ledger: new Ledger(store, { ...policy, ...options }),
    nodes: remote("nodes", timesOf, {}),
  };
}

/** A new database gets the plans of the process that opens it first. */
async function offer(store: Store, plans: Plans): Promise<void> {
  const { versions } = await store.plans();
  if (versions.size === 0) await store.applyPlans(plans, { force: false, by: "test" });
}
