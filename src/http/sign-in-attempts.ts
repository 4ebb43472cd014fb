/**
 * Limits failed attempts to sign in, for each client address on this node. An IPv6 client is its
 * /64 network.
 *
 * An attempt counts from its beginning, so that attempts at the same time are limited too. The
 * memory is bounded: beyond `clientsMax`, the clients that tried longest ago are forgotten.
 */
import { clientOf } from "./connections.ts";

/** Failed attempts in any minute. */
export const failedAttemptsMax = 10;
const windowMs = 60_000;
const clientsMax = 10_000;

export class SignInAttempts {
  readonly #nowMs: () => number;
  /** Monotonic times of attempts, oldest first; the client that tried last is last. */
  readonly #clients = new Map<string, number[]>();

  constructor(nowMs = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** Counts an attempt. Returns 0, or the time to wait if it is refused. */
  begin(address: string): number {
    const client = clientOf(address);
    const nowMs = this.#nowMs();
    const recent = (this.#clients.get(client) ?? []).filter((atMs) => atMs > nowMs - windowMs);
    const [first] = recent;
    if (first !== undefined && recent.length >= failedAttemptsMax) return first + windowMs - nowMs;
    this.#clients.delete(client);
    this.#clients.set(client, [...recent, nowMs]);
    if (this.#clients.size > clientsMax) {
      for (const oldest of this.#clients.keys()) {
        this.#clients.delete(oldest);
        break;
      }
    }
    return 0;
  }

  /** Takes back the newest attempt, which did not fail. */
  succeeded(address: string): void {
    this.#clients.get(clientOf(address))?.pop();
  }
}
