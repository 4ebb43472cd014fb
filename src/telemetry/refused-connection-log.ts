/** Logs that connections are refused: one line a minute for each reason, however many there are. */
import type { Logger } from "pino";
import type { ConnectionRefusal } from "../http/connections.ts";

const silentMs = 60_000;

const explanations: Record<ConnectionRefusal, string> = {
  total: "connections are refused: as many are open as limits.connections allows",
  address:
    "connections are refused: an address has as many open as limits.connections_per_address allows; if it is a proxy, name it in limits.trusted_proxies",
};

export class RefusedConnectionLog {
  readonly #logger: Pick<Logger, "warn">;
  readonly #nowMs: () => number;
  readonly #told = new Map<ConnectionRefusal, { atMs: number; since: number }>();

  constructor(logger: Pick<Logger, "warn">, nowMs: () => number = () => performance.now()) {
    this.#logger = logger;
    this.#nowMs = nowMs;
  }

  tell(reason: ConnectionRefusal, address: string): void {
    const last = this.#told.get(reason);
    const nowMs = this.#nowMs();
    if (last !== undefined && nowMs - last.atMs < silentMs) {
      last.since += 1;
      return;
    }
    this.#told.set(reason, { atMs: nowMs, since: 0 });
    this.#logger.warn({ address, refusedSinceLastLine: last?.since ?? 0 }, explanations[reason]);
  }
}
