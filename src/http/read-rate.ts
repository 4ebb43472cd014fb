/** Limits the reads of a key, so that one program does not slow others down. */
import { Refusal } from "../errors.ts";
import { limits } from "../limits/limits.ts";
import { TokenBucket } from "../limits/token-bucket.ts";

const perMs = 2_000;

export class ReadRate {
  readonly #reads = new TokenBucket(limits.keyReads, { perMs });

  /** Counts a read. Throws `rate_limit_exceeded` if the key has made too many. */
  count(key: string): void {
    const seconds = Math.ceil(this.#reads.take(key) / 1000);
    if (seconds === 0) return;
    throw new Refusal(
      "rate_limit_exceeded",
      `This key has made ${limits.keyReads.most} reads within ${perMs / 1000} s, which is its limit. Try again in ${seconds} s.`,
      { retryAfterSeconds: seconds },
    );
  }
}
