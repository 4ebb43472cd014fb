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
  const [state, setState] = useState<Omit<Loaded<T>, "reload">>({
    ...{ value: null, error: null, isLoading: true },
  });
  // The key stands for what `load` closes over.
  useEffect(() => {
    const aborter = new AbortController();
    setState(({ value }) => ({ value, error: null, isLoading: true }));
    load(aborter.signal).then(
      (value) => !aborter.signal.aborted && setState({ value, error: null, isLoading: false }),
      (error: Error) => !aborter.signal.aborted && setState({ value: null, error, isLoading: false }),
    );
    return () => aborter.abort();
  }, [key, turn, session]);
  const reload = useCallback(() => setTurn((count) => count + 1), []);
  return { ...state, reload };
}
