/** SIGINT and SIGTERM, which ask a command to stop. */

/** Exit codes that shells report for a program that a signal ended: 128 and the number of the signal. */
export const signalExitCodes = { SIGINT: 130, SIGTERM: 143 } as const;
export type StopSignal = keyof typeof signalExitCodes;

/** Calls `listener` for each stop signal until it is disposed. */
export function onStopSignal(listener: (signal: StopSignal) => void): Disposable {
  process.on("SIGINT", listener);
  process.on("SIGTERM", listener);
  return {
    [Symbol.dispose]() {
      process.off("SIGINT", listener);
      process.off("SIGTERM", listener);
    },
  };
}
