/**
 * A thread with its own connection to the SQLite file. The writer waits for the disk, so that the
 * main thread never does. Readers walk through long lists, so that commits do not wait for them.
 *
 * Calls are answered one after another, in the order in which they were sent. Only store.ts
 * starts this module.
 */
import { parentPort, workerData } from "node:worker_threads";
import { invariant, OperatorError, StoreUnavailableError } from "../../errors.ts";
import { openToRead, sqliteError } from "./file.ts";
import { Statements } from "./query.ts";
import {
  type Call,
  type Calls,
  type Handlers,
  openedId,
  type SqliteThreadData,
  type ThreadReply,
} from "./thread.ts";

/** Each role loads its modules only: a reader starts in two thirds of the time of the writer. */
const open: Record<SqliteThreadData["role"], (data: SqliteThreadData) => Promise<Handlers>> = {
  async writer(data) {
    const { openWriter } = await import("./writer.ts");
    return openWriter(data);
  },
  async reader({ file }) {
    const db = openToRead(file);
    const statements = new Statements(db);
    return { rows: (statement) => statements.rows(statement), close: () => db.close() };
  },
  async auditor({ file }) {
    const { auditFile } = await import("./audit.ts");
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

async function serveCalls(port: NonNullable<typeof parentPort>, data: SqliteThreadData): Promise<void> {
  const handlers = await open[data.role](data);

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
  await serveCalls(parentPort, workerData);
} catch (error) {
  parentPort.postMessage(faultOf(openedId, error));
}
