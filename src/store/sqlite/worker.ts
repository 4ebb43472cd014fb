/**
 * A thread with its own connection to the SQLite file. The writer waits for the disk, so that the
 * main thread never does. Readers walk through long lists, so that commits do not wait for them.
 *
 * Calls are answered one after another, in the order in which they were sent. Only store.ts
 * starts this module.
 */
import type { MessagePort } from "node:worker_threads";
import { invariant, OperatorError, StoreUnavailableError } from "../../errors.ts";
import { ListTooSlowError } from "../store.ts";
import { openToRead, sqliteError } from "./file.ts";
import { rowsWithin } from "./statements.ts";
import {
  type Call,
  type Calls,
  type Fault,
  type Handlers,
  openedId,
  type SqliteThreadData,
  type ThreadReply,
} from "./thread.ts";

/** Each role loads its modules only: a reader starts in two thirds of the time of the writer. */
const openers: Record<SqliteThreadData["role"], (data: SqliteThreadData) => Promise<Handlers>> = {
  async writer(data) {
    const { openWriter } = await import("./writer.ts");
    return openWriter(data);
  },
  async reader({ file, listMs }) {
    const db = openToRead(file);
    return { rows: rowsWithin(db, listMs), close: () => db.close() };
  },
};

function faultOf(id: number, thrown: unknown): ThreadReply {
  const error = sqliteError(thrown);
  const { message, stack = message } = error;
  const mayBeDone = error instanceof StoreUnavailableError && error.mayBeDone;
  return { id, error: { kind: kindOf(error), message, stack, mayBeDone } };
}

function kindOf(error: Error): Fault["kind"] {
  if (error instanceof ListTooSlowError) return "list too slow";
  if (error instanceof OperatorError) return "operator";
  return error instanceof StoreUnavailableError ? "unavailable" : "defect";
}

/** Opens the file in the role of this thread, and answers calls. */
export async function serve(port: MessagePort, data: SqliteThreadData): Promise<void> {
  try {
    const handlers = await openers[data.role](data);
    port.on("message", (call) => answer(port, data.role, handlers, call));
    port.postMessage({ id: openedId, value: null } satisfies ThreadReply);
  } catch (error) {
    port.postMessage(faultOf(openedId, error));
  }
}

function answer<M extends keyof Calls>(
  port: MessagePort,
  role: SqliteThreadData["role"],
  handlers: Handlers,
  { id, method, args }: Call<M>,
): void {
  try {
    const handler = handlers[method];
    invariant(handler !== undefined, `the ${role} of the database has no method ${method}`);
    port.postMessage({ id, value: handler(...args) } satisfies ThreadReply);
  } catch (error) {
    port.postMessage(faultOf(id, error));
  }
  if (method === "close") port.close();
}
