/**
 * Limits failed attempts to sign in, for each client address on this node. An IPv6 client is its
 * /64 network.
 *
 * The attempts of a client are made one after the other, so attempts at the same time find out no
 * more than others. Ten may fail in any minute; successful ones do not count.
 */
import { limits } from "../limits/limits.ts";
import { Slots } from "../limits/slots.ts";
import { TokenBucket } from "../limits/token-bucket.ts";
import { clientOf } from "./connections.ts";

/** An attempt takes some milliseconds. */
const fullRetryMs = 1_000;

/** Whether an attempt may be made. Call `end` when it has been made, whatever its outcome. */
type Admission =
  | { kind: "admitted"; end(hasFailed: boolean): void }
  /** Ten attempts have failed. */
  | { kind: "failed"; waitMs: number }
  /** Too many attempts wait. */
  | { kind: "full"; waitMs: number };

export class SignInAttempts {
  readonly #checks = new Slots(limits.signInChecks, limits.signInChecks.most, limits.waitingSignIns);
  readonly #failures: TokenBucket;

  constructor(nowMs?: () => number) {
    this.#failures = new TokenBucket(limits.failedSignIns, { most: 1, nowMs });
  }

  /** Resolves when the attempt may be made, or is refused. */
  async begin(address: string): Promise<Admission> {
    const client = clientOf(address);
    const turn = this.#checks.wait(client);
    if (turn === null) return { kind: "full", waitMs: fullRetryMs };
    await turn;
    const { key, waitMs } = this.#nextFailure(client);
    if (waitMs > 0) {
      this.#checks.release(client);
      return { kind: "failed", waitMs };
    }
    const end = (hasFailed: boolean): void => {
      if (hasFailed) this.#failures.spend(key, 1);
      this.#checks.release(client);
    };
    return { kind: "admitted", end };
  }

  /**
   * Returns which failure the next one of the client would be, and the time until it may be. Each
   * of the ten has a minute of its own. One bucket of ten would fill again while it is used, and
   * some minute would have nearly twenty.
   */
  #nextFailure(client: string): { key: string; waitMs: number } {
    const keys = Array.from({ length: limits.failedSignIns.most }, (_, n) => `${client} ${n}`);
    const waits = keys.map((key) => ({ key, waitMs: this.#failures.waitMs(key, 1) }));
    return waits.reduce((one, other) => (other.waitMs < one.waitMs ? other : one));
  }
}
