/**
 * Data of a page: loaded when its key changes, kept while it is loaded again. While the service is
 * away, it is tried again by itself.
 */
import { createContext } from "preact";
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, markUnattended, type Query } from "./api.ts";
import type { Page } from "./types.ts";

/** Changes with each sign-in, after which everything is loaded again. */
export const Session = createContext(0);

export interface Loaded<T> {
  value: T | null;
  error: Error | null;
  isLoading: boolean;
  reload(): void;
}

const retryMs = 3_000;

/** `key` names what is loaded: the same key, the same request. */
export function useLoaded<T>(key: string, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const session = useContext(Session);
  const [turn, setTurn] = useState(0);
  const isRetry = useRef(false);
  const [{ of, ...state }, setState] = useState<Omit<Loaded<T>, "reload"> & { of: string }>({
    of: key,
    value: null,
    error: null,
    isLoading: true,
  });
  // The key stands for what `load` closes over.
  useEffect(() => {
    const aborter = new AbortController();
    let retry: ReturnType<typeof setTimeout> | undefined;
    const isQuiet = isRetry.current;
    isRetry.current = false;
    // The message of a service that is away stays until it is back.
    if (isQuiet) markUnattended(aborter.signal);
    else setState((before) => ({ ...before, error: null, isLoading: true }));
    const settle = (change: (before: T | null) => { value: T | null; error: Error | null }) => {
      if (aborter.signal.aborted) return;
      setState((before) => ({
        ...change(before.of === key ? before.value : null),
        of: key,
        isLoading: false,
      }));
    };
    load(aborter.signal).then(
      (value) => settle(() => ({ value, error: null })),
      // Data of the same key stays, and with it a form that somebody fills in.
      (error: Error) => {
        settle((value) => ({ value, error }));
        if (aborter.signal.aborted || !(error instanceof ApiError) || error.status > 0) return;
        retry = setTimeout(() => {
          isRetry.current = true;
          setTurn((count) => count + 1);
        }, retryMs);
      },
    );
    return () => {
      clearTimeout(retry);
      aborter.abort();
    };
  }, [key, turn, session]);
  const reload = useCallback(() => setTurn((count) => count + 1), []);
  // Between a change of the key and the effect above, the value is that of the former key.
  return { ...state, isLoading: state.isLoading || of !== key, reload };
}

/** What one request of the API answers. */
export function useGet<T>(path: string, query: Query = {}): Loaded<T> {
  return useLoaded(`${path} ${JSON.stringify(query)}`, (signal) => get<T>(path, query, signal));
}

/** The first page of a list, which has no others. */
export function useList<Row>(path: string, query: Query = { limit: 500 }): Loaded<Page<Row>> {
  return useGet(path, query);
}
