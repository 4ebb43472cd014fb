/**
 * Follows a stream of the service for as long as its page is shown.
 *
 * A hidden page closes its stream and opens it again when it is shown. A stream that breaks off or
 * falls silent is opened again after a growing, random time. If the service has no place for
 * another stream, the page asks for the state every few seconds. None of these requests prolongs
 * the session. Without a session nothing is tried: signing in starts the page again.
 */
import { ApiError, events, get } from "./api.ts";

const retryMs = { min: 1_000, max: 30_000 };
/** The service sends a comment every 15 s. */
const silentMsMax = 40_000;
/** A stream whose first event takes longer counts as lost until the event arrives. */
const firstEventMsMax = 2_000;
/** After `max` polls, a stream is tried again. */
const polls = { everyMs: 5_000, max: 6 };

interface Followed {
  /** Path of the stream. */
  stream: string;
  /** Path that responds once, with the data of the event "message". Null if there is none. */
  once: string | null;
  onEvent(name: string, data: unknown): void;
  /** Called when anything arrives: the data shown is right now. */
  onAlive(): void;
  /** Called when the data shown may be outdated. The error is null if the service is slow. */
  onLost(error: unknown): void;
}

/** Returns a function that ends it. */
export function follow(followed: Followed): () => void {
  const { stream, once, onEvent, onAlive, onLost } = followed;
  let open: AbortController | null = null;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;

  function close(): void {
    clearTimeout(retry);
    open?.abort();
    open = null;
  }

  function start(): void {
    close();
    if (document.visibilityState === "hidden") return;
    open = new AbortController();
    void read(open, stream);
  }

  async function read(mine: AbortController, path: string): Promise<void> {
    const late = setTimeout(() => onLost(null), firstEventMsMax);
    let silence = setTimeout(() => mine.abort(), silentMsMax);
    const onBytes = () => {
      clearTimeout(silence);
      silence = setTimeout(() => mine.abort(), silentMsMax);
      onAlive();
    };
    let error: unknown = null;
    try {
      for await (const { name, data } of events(path, { signal: mine.signal, onBytes })) {
        clearTimeout(late);
        failures = 0;
        onEvent(name, JSON.parse(data));
      }
    } catch (thrown) {
      error = thrown;
    }
    clearTimeout(late);
    clearTimeout(silence);
    // Otherwise the page has closed it.
    if (open === mine) lost(error);
  }

  async function poll(mine: AbortController, path: string, pollsLeft: number): Promise<void> {
    try {
      onEvent("message", await get(path, {}, mine.signal));
      onAlive();
    } catch (error) {
      if (open === mine) lost(error);
      return;
    }
    if (open !== mine) return;
    retry = setTimeout(pollsLeft > 1 ? () => void poll(mine, path, pollsLeft - 1) : start, polls.everyMs);
  }

  function lost(error: unknown): void {
    open = null;
    if (error instanceof ApiError) {
      if (error.code === "concurrency_limit_exceeded" && once !== null) {
        open = new AbortController();
        void poll(open, once, polls.max);
        return;
      }
    }
    onLost(error);
    // Without a session, or without what the page is about.
    if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429)
      return;
    const waitMs = Math.min(retryMs.max, retryMs.min * 2 ** failures);
    failures += 1;
    retry = setTimeout(start, waitMs * (0.5 + Math.random() / 2));
  }

  function look(): void {
    failures = 0;
    start();
  }

  document.addEventListener("visibilitychange", look);
  addEventListener("online", look);
  start();
  return () => {
    document.removeEventListener("visibilitychange", look);
    removeEventListener("online", look);
    close();
  };
}
