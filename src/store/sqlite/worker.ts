/**
 * A thread with its own connection to the SQLite file. The writer waits for the disk, so that the
 * main thread never does. Readers walk through long lists, so that commits do not wait for them.
 *
 * Calls are answered one after another, in the order in which they were sent. Only store.ts
 * starts this module.
 */
import { parentPort, workerData } from "node:worker_threads";
import { invariant, OperatorError, StoreUnavailableError } from "../../errors.ts";
import { machineOf } from "../clock.ts";
import { auditFile } from "./audit.ts";
import { SqliteClock } from "./clock.ts";
import { SqliteLedger } from "./commit.ts";
import { openToRead, openToWrite, sqliteError } from "./file.ts";
import { Statements } from "./query.ts";
import { type Call, type Calls, openedId, type SqliteThreadData, type ThreadReply } from "./thread.ts";
import { SqliteUsageSums } from "./usage-sums.ts";

/** A role implements some of the calls. */
type Handlers = { [M in keyof Calls]?: (...args: Parameters<Calls[M]>) => ReturnType<Calls[M]> };

const open: Record<SqliteThreadData["role"], (data: SqliteThreadData) => Handlers> = {
  writer({ file, plans, upgrade, clock }) {
    const db = openToWrite(file, { nowMs: machineOf(clock).clockMs(), plans, upgrade });
    const time = new SqliteClock(db, clock);
    const ledger = new SqliteLedger(db, () => time.read());
    const sums = new SqliteUsageSums(db, () => time.read());
    const statements = new Statements(db);
    return {
      commit(operations) {
        time.recordIfOld();
        return ledger.commit(operations);
      },
      putAccounts(drafts, options) {
        time.recordIfOld();
        return ledger.putAccounts(drafts, options);
      },
      applyPlans: (section, force) => ledger.applyPlans(section, force),
      clock: () => time.look(),
      acceptClock: (by) => time.accept(by),
      rows: (statement) => statements.rows(statement),
      sumUsage: () => sums.step(),
      close: () => db.close(),
    };
  },
  reader({ file }) {
    const db = openToRead(file);
    const statements = new Statements(db);
    return { rows: (statement) => statements.rows(statement), close: () => db.close() };
  },
  auditor({ file }) {
    return { audit: (nowMs) => auditFile({ file, nowMs }), close() {} };
  },
};

function faultOf(id: number, thrown: unknown): ThreadReply {
  const error = sqliteError(thrown);
  const isUnavailable = error instanceof StoreUnavailableError;
  const kind = isUnavailable ? "unavailable" : error instanceof OperatorError ? "operator" : "defect";
  const { message, stack = message } = error;
  return { id, error: { kind, message, stack, mayBeDone: isUnavailable && error.mayBeDone } };
}

function serveCalls(port: NonNullable<typeof parentPort>, data: SqliteThreadData): void {
  const handlers = open[data.role](data);

  function answer<M extends keyof Calls>({ id, method, args }: Call<M>): void {
    try {
      const handler = handlers[method];
      invariant(handler !== undefined, `the ${data.role} of the database has no method ${method}`);
      port.postMessage({ id, value: handler(...args) } satisfies ThreadReply);
    } catch (error) {
      port.postMessage(faultOf(id, error));
    }
    if (method === "close") port.close();
  }
  port.on("message", answer);
  port.postMessage({ id: openedId, value: null } satisfies ThreadReply);
}

invariant(parentPort !== null, "this module is started as a worker thread");
try {
  serveCalls(parentPort, workerData);
} catch (error) {
  parentPort.postMessage(faultOf(openedId, error));
}
