/** Times that operators cannot configure. Tests set shorter ones. */
import { type EventTimes, eventTimes } from "../events/event-sending.ts";
import { recordEveryMs } from "../store/clock.ts";
import { heartbeatEveryMs } from "../store/nodes.ts";

export interface ServiceTimes {
  /**
   * A stream that is silent for this long gets a comment line, so that proxies keep the
   * connection.
   */
  keepAliveMs: number;
  /** A hold without a heartbeat for this long expires and is charged by its last checkpoint. */
  holdTtlMs: number;
  /** Interval between searches for expired holds, and for changes of accounts that are due. */
  sweepEveryMs: number;
  /** Interval between looks for usage to sum. */
  sumUsageEveryMs: number;
  /** Interval between removals of expired sessions. */
  removeSessionsEveryMs: number;
  /** Interval between looks for people who no longer sign in. */
  lapseEveryMs: number;
  /** Interval between heartbeats to the other nodes, and between looks at the plans. */
  heartbeatEveryMs: number;
  /** Interval between looks for requests that an operator stopped on another node. */
  stopsEveryMs: number;
  /** Interval between looks at the clock. */
  clockEveryMs: number;
  /** Interval between probes of an upstream server that answers no requests. */
  probeEveryMs: number;
  /** Time to settle and report answers that the end of the drain time cut off. */
  settleMs: number;
  events: EventTimes;
  /** Time limit of chat templates. Default: that of the embedded engine. */
  renderMs?: number;
}

export const serviceTimes: ServiceTimes = {
  keepAliveMs: 15_000,
  holdTtlMs: 30_000,
  sweepEveryMs: 10_000,
  sumUsageEveryMs: 30_000,
  removeSessionsEveryMs: 60_000,
  lapseEveryMs: 240_000,
  heartbeatEveryMs,
  stopsEveryMs: 2_000,
  clockEveryMs: recordEveryMs,
  probeEveryMs: 15_000,
  settleMs: 10_000,
  events: eventTimes,
};
