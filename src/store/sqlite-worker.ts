/**
 * The thread that writes the SQLite file: it waits for the disk, so that no token of a stream has to.
 *
 * Messages are answered one after another, in the order in which they were sent. Started by sqlite.ts and of no
 * use alone.
 */
import { parentPort, workerData } from "node:worker_threads";
import { StoreUnavailableError } from "../credits/ledger.ts";
import { invariant, OperatorError } from "../errors.ts";
import { openToWrite, storeError } from "./sqlite-file.ts";
import { SqliteKeys } from "./sqlite-keys.ts";
import { SqliteLedger } from "./sqlite-ledger.ts";
import { SqliteLists } from "./sqlite-reads.ts";
import {
  type Answer,
  type Call,
  type Calls,
  clockOf,
  openedId,
  type SqliteThreadData,
} from "./sqlite-thread.ts";

function faultOf(id: number, thrown: unknown): Answer {
  const error = storeError(thrown);
  const kind =
    error instanceof OperatorError
      ? "operator"
      : error instanceof StoreUnavailableError
        ? "unavailable"
        : "defect";
  return { id, error: { kind, message: error.message, stack: error.stack ?? error.message } };
}

function serve(port: NonNullable<typeof parentPort>, { file, plans, clock }: SqliteThreadData): void {
  const now = clockOf(clock);
  const db = openToWrite(file, now());
  const ledger = new SqliteLedger(db, plans, now);
  const keys = new SqliteKeys(db);
  const lists = new SqliteLists(db);

  const handlers: { [M in keyof Calls]: (...args: Parameters<Calls[M]>) => ReturnType<Calls[M]> } = {
    commit: (operations) => ledger.commit(operations),
    addKey: (key) => keys.add(key),
    keyById: (id) => keys.byId(id),
    keys: (account) => keys.list(account),
    revokeKey: (id, atMs) => keys.revoke(id, atMs),
    accounts: (query) => lists.accounts(query),
    usage: (query) => lists.usage(query),
    journal: (account, query) => lists.journal(account, query),
    holds: (query) => lists.holds(query),
    holdTotals: () => lists.holdTotals(),
    overdueHolds: (atMs, limit) => lists.overdueHolds(atMs, limit),
    close: () => db.close(),
  };

  function answer<M extends keyof Calls>({ id, method, args }: Call<M>): void {
    try {
      port.postMessage({ id, value: handlers[method](...args) } satisfies Answer);
    } catch (error) {
      port.postMessage(faultOf(id, error));
    }
    if (method === "close") port.close();
  }
  port.on("message", answer);
  port.postMessage({ id: openedId, value: null } satisfies Answer);
}

invariant(parentPort !== null, "this module is started as a worker thread");
try {
  serve(parentPort, workerData);
} catch (error) {
  parentPort.postMessage(faultOf(openedId, error));
}
