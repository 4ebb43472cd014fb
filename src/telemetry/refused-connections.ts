/**
 * Reports the connections that a listener refuses. Each counts in a metric. The log has at most
 * one line per minute and reason, with the number of refusals since the last line.
 */
import type { Logger } from "pino";
import type { ConnectionRefusal, Listener, Metrics } from "./metrics.ts";

const silentMs = 60_000;

const ifProxy = "; if it is a proxy, name it in limits.trusted_proxies";

const explanations: Record<Listener, Record<ConnectionRefusal, string>> = {
  public: {
    total: "connections are refused: as many are open as limits.connections allows",
    address: `connections are refused: an address has as many open as limits.connections_per_address allows${ifProxy}`,
  },
  operator: {
    total: "connections are refused: the operator listener has as many as it accepts",
    address:
      "connections are refused: an address has as many to the operator listener as it accepts from one",
  },
  portal: {
    total: "connections are refused: the portal has as many as the open files of this process allow",
    address: `connections are refused: an address has as many to the portal as it accepts from one${ifProxy}`,
  },
};

/** Returns the function that a listener calls for each connection that it refuses. */
export function refusedConnections(
  listener: Listener,
  { metrics, logger }: { metrics: Pick<Metrics, "connectionRefused">; logger: Pick<Logger, "warn"> },
): (reason: ConnectionRefusal, address: string) => void {
  const lastLines = new Map<ConnectionRefusal, { atMs: number; since: number }>();
  return (reason, address) => {
    metrics.connectionRefused(listener, reason);
    const last = lastLines.get(reason);
    const nowMs = performance.now();
    if (last !== undefined && nowMs - last.atMs < silentMs) {
      last.since += 1;
      return;
    }
    lastLines.set(reason, { atMs: nowMs, since: 0 });
    logger.warn(
      { listener, address, refusedSinceLastLine: last?.since ?? 0 },
      explanations[listener][reason],
    );
  };
}
