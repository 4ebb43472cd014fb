/** Signals of the process, while a command runs. */

/**
 * Exit codes that shells report for a program that a signal ended: 128 and the number of the
 * signal.
 */
export const signalExitCodes = { SIGINT: 130, SIGTERM: 143 } as const;
export type StopSignal = keyof typeof signalExitCodes;

/** Calls `listener` for SIGINT and SIGTERM until it is disposed. */
export function onStopSignal(listener: (signal: StopSignal) => void): Disposable {
  const listeners = new DisposableStack();
  for (const signal of ["SIGINT", "SIGTERM"] as const) listeners.use(onSignal(signal, listener));
  return listeners;
}

export function onSignal<S extends NodeJS.Signals>(signal: S, listener: (signal: S) => void): Disposable {
  const heard = () => listener(signal);
  process.on(signal, heard);
  return { [Symbol.dispose]: () => process.off(signal, heard) };
}
