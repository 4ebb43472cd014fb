/**
 * Limits failed attempts to sign in, for each client address on this node. An IPv6 client is its
 * /64 network.
 *
 * Attempts under way and failed ones of the last minute are ten at most. Further attempts wait
 * until one ends: a success gives its place back, a failure keeps it. So attempts at the same time
 * find out no more than attempts one after the other. The memory is bounded: beyond `clientsMax`,
 * the clients that tried longest ago are forgotten.
 */
import { setNewest } from "../collections.ts";
import { clientOf } from "./connections.ts";

/** Failed attempts in any minute. */
export const failedAttemptsMax = 10;
/** Attempts of one client that wait. A page sends one at a time. */
export const waitingAttemptsMax = 100;
const windowMs = 60_000;
const clientsMax = 10_000;
/** An attempt takes some milliseconds. */
const fullRetryMs = 1_000;

/** Whether an attempt may be made. Call `end` when it has been made, whatever its outcome. */
type Admission =
  | { kind: "admitted"; end(hasFailed: boolean): void }
  /** Ten attempts have failed. */
  | { kind: "failed"; waitMs: number }
  /** Too many attempts wait. */
  | { kind: "full"; waitMs: number };

interface Client {
  /** Monotonic times of failures, oldest first. */
  failedMs: number[];
  underWay: number;
  waiting: ((admission: Admission) => void)[];
}

export class SignInAttempts {
  readonly #nowMs: () => number;
  /** The client that tried last is last. */
  readonly #clients = new Map<string, Client>();

  constructor(nowMs = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** Resolves when the attempt may be made, or is refused. */
  async begin(address: string): Promise<Admission> {
    const client = this.#clientAt(clientOf(address));
    if (client.waiting.length >= waitingAttemptsMax) return { kind: "full", waitMs: fullRetryMs };
    const { promise, resolve } = Promise.withResolvers<Admission>();
    client.waiting.push(resolve);
    this.#admit(client);
    return await promise;
  }

  #clientAt(name: string): Client {
    const client = this.#clients.get(name) ?? { failedMs: [], underWay: 0, waiting: [] };
    setNewest(this.#clients, name, client, clientsMax);
    return client;
  }

  /** Decides about the attempts that wait, as far as that is possible now. */
  #admit(client: Client): void {
    const nowMs = this.#nowMs();
    client.failedMs = client.failedMs.filter((atMs) => atMs > nowMs - windowMs);
    const { failedMs, waiting } = client;
    const [firstMs] = failedMs;
    if (firstMs !== undefined && failedMs.length >= failedAttemptsMax) {
      const waitMs = firstMs + windowMs - nowMs;
      for (const resolve of waiting.splice(0)) resolve({ kind: "failed", waitMs });
      return;
    }
    const free = failedAttemptsMax - failedMs.length - client.underWay;
    for (const resolve of waiting.splice(0, Math.max(0, free))) {
      client.underWay += 1;
      resolve({ kind: "admitted", end: (hasFailed) => this.#end(client, hasFailed) });
    }
  }

  #end(client: Client, hasFailed: boolean): void {
    client.underWay -= 1;
    if (hasFailed) client.failedMs.push(this.#nowMs());
    this.#admit(client);
  }
}
