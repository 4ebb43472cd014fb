/**
 * A time limit for synchronous JavaScript, which no timer can interrupt.
 *
 * Guarantees that a call ends within its limit, even if it loops for ever: V8 breaks it off and the process goes on.
 * Does not interrupt native code. A call costs 0.3 ms, because a thread of its own measures the time.
 */
import { isNativeError } from "node:util/types";
import { createContext, Script } from "node:vm";

export class TimeLimitExceeded extends Error {
  override readonly name = "TimeLimitExceeded";
}

const globals: { run: () => void } = { run: () => {} };
const context = createContext(globals);
const script = new Script("run()");

/** Returns what `call` returns. Throws a `TimeLimitExceeded` if `call` takes longer. Calls cannot be nested. */
export function withTimeLimit<T>(limitMs: number, call: () => T): T {
  let result: { value: T } | undefined;
  globals.run = () => {
    result = { value: call() };
  };
  try {
    script.runInContext(context, { timeout: limitMs });
  } catch (cause) {
    // An error of the other context, which is no `Error` of this one.
    if (isNativeError(cause) && "code" in cause && cause.code === "ERR_SCRIPT_EXECUTION_TIMEOUT")
      throw new TimeLimitExceeded(`longer than ${limitMs / 1000} s`, { cause });
    throw cause;
  } finally {
    globals.run = () => {};
  }
  if (result === undefined) throw new Error("the call has ended without a result");
  return result.value;
}
