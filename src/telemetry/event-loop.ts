/**
 * Measures the delay of the event loop with a timer. During a delay, requests, streams and health
 * checks all wait. One sample every 20 ms costs a thousandth of a core.
 */

const everyMs = 20;

/**
 * Calls `observe` with each delay. A block of the event loop is one long delay. The timer keeps no
 * process alive.
 */
export function watchEventLoop(observe: (delayMs: number) => void): { stop(): void } {
  let dueMs = performance.now() + everyMs;
  const timer = setInterval(() => {
    const nowMs = performance.now();
    observe(Math.max(0, nowMs - dueMs));
    dueMs = nowMs + everyMs;
  }, everyMs);
  timer.unref();
  return { stop: () => clearInterval(timer) };
}
