/** Signals of the process, while a command runs. */
import type { EventEmitter } from "node:events";

/**
 * Exit codes that shells report for a program that a signal ended: 128 and the number of the
 * signal.
 */
export const signalExitCodes = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;
export type StopSignal = "SIGINT" | "SIGTERM";

/** Calls `listener` for SIGINT and SIGTERM until it is disposed. */
export function onStopSignal(from: EventEmitter, listener: (signal: StopSignal) => void): Disposable {
  const listeners = new DisposableStack();
  for (const signal of ["SIGINT", "SIGTERM"] as const) listeners.use(onSignal(from, signal, listener));
  return listeners;
}

export function onSignal<S extends NodeJS.Signals>(
  from: EventEmitter,
  signal: S,
  listener: (signal: S) => void,
): Disposable {
  const heard = () => listener(signal);
  from.on(signal, heard);
  return { [Symbol.dispose]: () => from.off(signal, heard) };
}
