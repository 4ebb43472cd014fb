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
import { timesAt } from "../../src/ledger/snapshot.ts";
import { retry } from "../../src/retry.ts";
import { commitGiveUpMs, commitQueuesMax, commitRetriesMs } from "../../src/store/postgres/store.ts";
import type { Store } from "../../src/store/store.ts";

/** The connection of a process to the database of the world. */
export interface DatabaseConnection {
  /**
   * Resolves with a copy of the answer. `lost` is true if the call may have changed something.
   * Answers may arrive long after the call, or never.
   */
  call(target: string, method: string, given: readonly unknown[]): Promise<Reply>;
  nowMs(): number;
}

export type Reply = { value: unknown } | { error: "unavailable"; mayBeDone: boolean };

declare const simulation: { database: DatabaseConnection };

type Methods<T> = {
  [Name in keyof T as T[Name] extends (...given: never[]) => Promise<unknown> ? Name : never]: T[Name];
};

const policy = { retriesMs: commitRetriesMs, giveUpMs: commitGiveUpMs };

/** Reads that requests wait for are repeated, as the stores do. */
const repeated = ["findKey", "accountSnapshot", "plans"];

/** Sends each call of a method to the object of the same name at the database. */
function remote<T extends object>(target: string, local: Omit<T, keyof Methods<T>> & Partial<T>): T {
  const send = async (method: string, given: readonly unknown[]) => {
    const reply = await simulation.database.call(target, method, given);
    if ("value" in reply) return reply.value;
    throw new StoreUnavailableError("the database is unavailable at present: simulated", {
      mayBeDone: reply.mayBeDone,
    });
  };
  const { signal } = new AbortController();
  return new Proxy(local as T, {
    get: (own, name) => {
      if (typeof name !== "string" || name === "then" || name in own) return Reflect.get(own, name);
      const isRepeated = repeated.includes(name);
      return (...given: readonly unknown[]) =>
        isRepeated ? retry(() => send(name, given), policy, signal) : send(name, given);
    },
  });
}

export async function openUpgradedStore(
  { plans }: Config,
  options: LedgerOptions & { onCopy: (file: string) => void },
): Promise<OpenDatabase> {
  const store = remote<Store>("store", {
    times: () => timesAt(simulation.database.nowMs()),
    commitQueues: commitQueuesMax,
    close: async () => {},
    auditJobs: remote("auditJobs", {}),
    stopRequests: remote("stopRequests", {}),
  });
  await offer(store, plans);
  return { store, ledger: new Ledger(store, { ...policy, ...options }), nodes: remote("nodes", {}) };
}

/** A new database gets the plans of the process that opens it first. */
async function offer(store: Store, plans: Plans): Promise<void> {
  const { versions } = await store.plans();
  if (versions.size === 0) await store.applyPlans(plans, false);
}
