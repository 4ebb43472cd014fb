/**
 * A thread with a connection of its own to the SQLite file: the one that writes waits for the disk, so that no token
 * of a stream has to; the one that reads goes through long lists, so that no commit has to wait for it.
 *
 * Messages are answered one after another, in the order in which they were sent. Started by remote.ts and of
 * no use alone.
 */
import { parentPort, workerData } from "node:worker_threads";
import { invariant, OperatorError } from "../../errors.ts";
import { StoreUnavailableError } from "../../ledger/retry.ts";
import { openToRead, openToWrite, storeError } from "./file.ts";
import { SqliteKeyring, SqliteKeys } from "./keys.ts";
import { SqliteLedger } from "./ledger.ts";
import { SqliteLists } from "./reads.ts";
import {
  type Answer,
  type Call,
  type Calls,
  clockOf,
  openedId,
  type ReaderCalls,
  type SqliteThreadData,
  type WriterCalls,
} from "./thread.ts";

type Handlers<C> = {
  [M in keyof C]: C[M] extends (...args: infer A) => infer R ? (...args: A) => R : never;
};

function faultOf(id: number, thrown: unknown): Answer {
  const error = storeError(thrown);
  const kind =
    error instanceof OperatorError
      ? "operator"
      : error instanceof StoreUnavailableError
        ? "unavailable"
        : "defect";
  const mayBeDone = error instanceof StoreUnavailableError && error.mayBeDone;
  return { id, error: { kind, message: error.message, stack: error.stack ?? error.message, mayBeDone } };
}

function writing({ file, plans, clock }: SqliteThreadData): Handlers<WriterCalls> {
  const now = clockOf(clock);
  const db = openToWrite(file, now());
  const ledger = new SqliteLedger(db, plans, now);
  const keys = new SqliteKeys(db);
  return {
    commit: (operations) => ledger.commit(operations),
    addKey: (key) => keys.add(key),
    revokeKey: (id, atMs) => keys.revoke(id, atMs),
    close: () => db.close(),
  };
}

function reading({ file, clock }: SqliteThreadData): Handlers<ReaderCalls> {
  const db = openToRead(file);
  const keys = new SqliteKeyring(db);
  const lists = new SqliteLists(db, clockOf(clock));
  return {
    keyById: (id) => keys.byId(id),
    keys: (account) => keys.list(account),
    accounts: (query) => lists.accounts(query),
    usage: (query) => lists.usage(query),
    journal: (account, query) => lists.journal(account, query),
    holds: (query) => lists.holds(query),
    holdTotals: () => lists.holdTotals(),
    overdueHolds: (atMs, limit) => lists.overdueHolds(atMs, limit),
    close: () => db.close(),
  };
}

function serve(port: NonNullable<typeof parentPort>, data: SqliteThreadData): void {
  const handlers: Partial<Handlers<Calls>> = data.role === "writer" ? writing(data) : reading(data);

  function answer<M extends keyof Calls>({ id, method, args }: Call<M>): void {
    try {
      const handler = handlers[method];
      invariant(handler !== undefined, `the thread that is the ${data.role} is not asked for ${method}`);
      port.postMessage({ id, value: handler(...args) } satisfies Answer);
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
