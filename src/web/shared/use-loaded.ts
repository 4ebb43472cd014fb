/** Data of a page: loaded when its key changes, kept while it is loaded again. */
import { createContext } from "preact";
import { useCallback, useContext, useEffect, useState } from "preact/hooks";

/** Changes with each sign-in, after which everything is loaded again. */
export const Session = createContext(0);

export interface Loaded<T> {
  value: T | null;
  error: Error | null;
  isLoading: boolean;
  reload(): void;
}

/** `key` names what is loaded: the same key, the same request. */
export function useLoaded<T>(key: string, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const session = useContext(Session);
  const [turn, setTurn] = useState(0);
  const [{ of: _of, ...state }, setState] = useState<Omit<Loaded<T>, "reload"> & { of: string }>({
    ...{ of: key, value: null, error: null, isLoading: true },
  });
  // The key stands for what `load` closes over.
  useEffect(() => {
    const aborter = new AbortController();
    setState((before) => ({ ...before, error: null, isLoading: true }));
    const settle = (change: (before: T | null) => { value: T | null; error: Error | null }) => {
      if (aborter.signal.aborted) return;
      setState((before) => ({
        ...change(before.of === key ? before.value : null),
        ...{ of: key, isLoading: false },
      }));
    };
    load(aborter.signal).then(
      (value) => settle(() => ({ value, error: null })),
      // Data of the same key stays, and with it a form that somebody fills in.
      (error: Error) => settle((value) => ({ value, error })),
    );
    return () => aborter.abort();
  }, [key, turn, session]);
  const reload = useCallback(() => setTurn((count) => count + 1), []);
  return { ...state, reload };
}
