/** Data of a page that the service keeps sending, and the mark that shows whether it is live. */
import type { ComponentChildren } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { ApiError } from "./api.ts";
import { follow } from "./follow.ts";
import { Failure } from "./states.tsx";
import { exactTime } from "./times.ts";
import { Session } from "./use-loaded.ts";
import { Badge } from "./values.tsx";

interface Live<Events> {
  /** The last data of each event. */
  value: Partial<Events>;
  /** Why the service refuses the stream. Null while it cannot be reached. */
  error: Error | null;
  /** Null while the data is live, otherwise the time at which it was. */
  asOfMs: number | null;
}

const nothing = { value: {}, error: null, asOfMs: null };

/**
 * Follows a stream. `Events` has the data of each event by its name. `once` is a path that
 * responds with the data of the event `message`, for pages that get no stream.
 */
export function useLive<Events extends object>(stream: string, once: string | null = null): Live<Events> {
  const session = useContext(Session);
  const [{ of, ...state }, setState] = useState<Live<Events> & { of: string }>({ of: stream, ...nothing });
  useEffect(() => {
    let aliveMs = Date.now();
    setState((before) => (before.of === stream ? { ...before, error: null } : { of: stream, ...nothing }));
    return follow({
      ...{ stream, once },
      onEvent: (name, data) =>
        setState((before) => ({
          ...before,
          value: { ...before.value, [name]: data },
          error: null,
          asOfMs: null,
        })),
      onAlive: () => {
        aliveMs = Date.now();
      },
      onLost: (lost) => {
        const error = lost instanceof ApiError && lost.status > 0 && lost.status !== 401 ? lost : null;
        setState((before) => ({ ...before, error, asOfMs: before.asOfMs ?? aliveMs }));
      },
    });
  }, [stream, once, session]);
  return of === stream ? state : nothing;
}

/** Says whether the data is live. Screen readers hear of a change, and of no number. */
export function LiveMark<Events>({ of: { value, asOfMs } }: { of: Live<Events> }) {
  const hasData = Object.keys(value).length > 0;
  return (
    <span class="nowrap" role="status">
      {hasData && asOfMs === null && <Badge text="live" tone="good" />}
      {hasData && asOfMs !== null && <Badge text={`as of ${exactTime(asOfMs)}`} tone="warn" />}
    </span>
  );
}

/** Shows the data of one event, or the state it is in. Data stays while there is no connection. */
export function ShownLive<Events, Name extends keyof Events>(props: {
  of: Live<Events>;
  event: Name;
  children: (value: Events[Name]) => ComponentChildren;
}) {
  const { of, event, children } = props;
  const value = of.value[event];
  if (of.error !== null) return <Failure error={of.error} />;
  if (value !== undefined) return <>{children(value)}</>;
  if (of.asOfMs === null) return <p class="loading quiet">Loading …</p>;
  return (
    <p class="notice warn" role="alert">
      The service does not respond. This page tries again by itself.
    </p>
  );
}
