/**
 * Measures how late the event loop comes to a timer. While it is late, nobody is answered: neither requests nor streams
 * nor health checks. One sample every 20 ms costs a thousandth of a core.
 */

const everyMs = 20;

export interface EventLoopWatch {
  stop(): void;
}

/** Calls `observe` with each delay, in milliseconds. A block of the event loop is one long delay. Keeps no process alive. */
export function watchEventLoop(observe: (delayMs: number) => void): EventLoopWatch {
  let dueMs = performance.now() + everyMs;
  const timer = setInterval(() => {
    const nowMs = performance.now();
    observe(Math.max(0, nowMs - dueMs));
    dueMs = nowMs + everyMs;
  }, everyMs);
  timer.unref();
  return { stop: () => clearInterval(timer) };
}
