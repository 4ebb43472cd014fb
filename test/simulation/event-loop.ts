/** In place of src/telemetry/event-loop.ts: a simulated event loop is never late. */

export function watchEventLoop(): { stop(): void } {
  return { stop() {} };
}
