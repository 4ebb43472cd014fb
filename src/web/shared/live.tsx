/**
 * Data of a page that is asked for again and again, and the mark that shows whether it is live.
 *
 * A page asks every 2 s while something runs, otherwise every 10 s, and not while it is hidden. No
 * such request prolongs the session. An unchanged state has no body.
 */
import type { ComponentChildren } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { ApiError, getState } from "./api.ts";
import { Failure } from "./states.tsx";
import { exactTime } from "./times.ts";
import { Session } from "./use-loaded.ts";
import { Badge } from "./values.tsx";

const everyMs = { busy: 2_000, idle: 10_000 };
/** A response that takes longer counts as lost until it arrives. */
const lateMs = 2_000;
/** It is given up after this time, because the network may have lost it. */
const lostMs = 40_000;

export interface Live<T> {
  value: T | null;
  /** Why the service refuses it. Null while it cannot be reached. */
  error: Error | null;
  /** Null while the data is live, otherwise the time at which it was. */
  asOfMs: number | null;
}

const nothing = { value: null, error: null, asOfMs: null };

/** Asks for the state at `path`, and at once for another `version`. `isBusy`: something runs. */
export function useLive<T>(path: string, isBusy: (value: T) => boolean, version = 0): Live<T> {
  const session = useContext(Session);
  const [{ of, ...state }, setState] = useState<Live<T> & { of: string }>({ of: path, ...nothing });
  useEffect(() => {
    let [tag, isRunning, aliveMs] = ["", false, Date.now()];
    let aborter = new AbortController();
    let next: ReturnType<typeof setTimeout> | undefined;
    const lost = (error: Error | null) =>
      setState((before) => ({ ...before, error, asOfMs: before.asOfMs ?? aliveMs }));

    async function ask(): Promise<void> {
      clearTimeout(next);
      aborter.abort();
      if (document.visibilityState === "hidden") return;
      aborter = new AbortController();
      const { signal } = aborter;
      const late = setTimeout(() => lost(null), lateMs);
      let isOver = false;
      try {
        const answer = await getState<T>(path, tag, AbortSignal.any([signal, AbortSignal.timeout(lostMs)]));
        aliveMs = Date.now();
        if (answer !== null) [tag, isRunning] = [answer.tag, isBusy(answer.value)];
        setState((before) => ({
          ...before,
          ...(answer && { value: answer.value }),
          error: null,
          asOfMs: null,
        }));
      } catch (error) {
        if (signal.aborted) return;
        const { status } = error instanceof ApiError ? error : { status: 0 };
        // Without a session, or without what the page is about. Signing in starts it again.
        isOver = status >= 400 && status < 500 && status !== 429;
        lost(error instanceof Error && status > 0 && status !== 401 ? error : null);
      } finally {
        clearTimeout(late);
      }
      if (!isOver && !signal.aborted) next = setTimeout(ask, isRunning ? everyMs.busy : everyMs.idle);
    }

    setState((before) => (before.of === path ? { ...before, error: null } : { of: path, ...nothing }));
    document.addEventListener("visibilitychange", ask);
    addEventListener("online", ask);
    void ask();
    return () => {
      document.removeEventListener("visibilitychange", ask);
      removeEventListener("online", ask);
      clearTimeout(next);
      aborter.abort();
    };
  }, [path, session, version]);
  return of === path ? state : nothing;
}

/** Says whether the data is live. Screen readers hear of a change, and of no number. */
export function LiveMark<T>({ of: { value, asOfMs } }: { of: Live<T> }) {
  return (
    <span class="nowrap" role="status">
      {value !== null && asOfMs === null && <Badge text="live" tone="good" />}
      {value !== null && asOfMs !== null && <Badge text={`as of ${exactTime(asOfMs)}`} tone="warn" />}
    </span>
  );
}

/** Shows the data, or the state it is in. Data stays while there is no connection. */
export function ShownLive<T>({ of, children }: { of: Live<T>; children: (value: T) => ComponentChildren }) {
  if (of.error !== null) return <Failure error={of.error} />;
  if (of.value !== null) return <>{children(of.value)}</>;
  if (of.asOfMs === null) return <p class="loading quiet">Loading …</p>;
  return (
    <p class="notice warn" role="alert">
      The service does not respond. This page tries again by itself.
    </p>
  );
}
