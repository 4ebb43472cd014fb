/** Limits the reads of a key, and those of live pages of a session or an account. */
import { Refusal } from "../errors.ts";
import { limits } from "../limits/limits.ts";
import { TokenBucket } from "../limits/token-bucket.ts";

const keyMs = 2_000;

const kinds = {
  key: () => ({ reads: new TokenBucket(limits.keyReads, { perMs: keyMs }), perMs: keyMs }),
  session: () => ({ reads: new TokenBucket(limits.sessionReads), perMs: 60_000 }),
  account: () => ({ reads: new TokenBucket(limits.accountReads), perMs: 60_000 }),
};

export class ReadRate {
  readonly #whose: keyof typeof kinds;
  readonly #reads: TokenBucket;
  readonly #perMs: number;

  constructor(whose: keyof typeof kinds) {
    const { reads, perMs } = kinds[whose]();
    this.#whose = whose;
    this.#reads = reads;
    this.#perMs = perMs;
  }

  /** Counts a read. Throws `rate_limit_exceeded` if there were too many. */
  count(id: string): void {
    const seconds = Math.ceil(this.#reads.take(id) / 1000);
    if (seconds === 0) return;
    throw new Refusal(
      "rate_limit_exceeded",
      `This ${this.#whose} has made ${this.#reads.most} reads within ${this.#perMs / 1000} s, which is its limit. Try again in ${seconds} s.`,
      { retryAfterSeconds: seconds },
    );
  }
}
