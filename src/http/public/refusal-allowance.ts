/**
 * Limits the work on chat requests that end in a refusal: bytes of their bodies and processor
 * time. Refused requests are free, so without a limit a key without credits could take the main
 * thread from all other callers.
 *
 * The number of refusals does not count, because small invalid requests are cheap. The
 * allowances are in memory, for this process only.
 */
import type { Caller } from "../../accounts/keys.ts";
import { Refusal } from "../../errors.ts";
import { limits } from "../../limits/limits.ts";
import { TokenBucket } from "../../limits/token-bucket.ts";
import type { Work } from "../../telemetry/request-record.ts";

export interface RefusalLimits {
  /** Body bytes of refused requests of one account. */
  refusedBytesPerMinute: number;
  /** Processor time of the main thread for refused requests of one account. */
  refusedMsPerMinute: number;
}

/** The longest time that `retry-after` can express. */
const waitMsMax = 60_000;

export class RefusalAllowance {
  readonly #bytes: TokenBucket;
  readonly #ms: TokenBucket;

  constructor(given: RefusalLimits, nowMs?: () => number) {
    const options = { waitMsMax, nowMs };
    this.#bytes = new TokenBucket(limits.refusedBytes, options);
    this.#ms = new TokenBucket(limits.refusedMs, options);
    this.configure(given);
  }

  /** Changes the limits. Work that was done before still counts. */
  configure({ refusedBytesPerMinute, refusedMsPerMinute }: RefusalLimits): void {
    this.#bytes.most = refusedBytesPerMinute;
    this.#ms.most = refusedMsPerMinute;
  }

  /** Throws `too_many_refusals` if the account has used up its allowance. */
  require({ accountId }: Pick<Caller, "accountId">): void {
    const waitMs = Math.max(this.#bytes.waitMs(accountId), this.#ms.waitMs(accountId));
    if (waitMs === 0) return;
    const seconds = Math.ceil(waitMs / 1000);
    throw new Refusal(
      "too_many_refusals",
      `Refused requests of this account took too many bytes or too much time. The limit is ${this.#bytes.most} bytes and ${this.#ms.most} ms of processor time per minute. Correct the requests as their errors say, and try again in ${seconds} s.`,
      { retryAfterSeconds: seconds },
    );
  }

  /** Counts the work on a refused request. */
  charge({ accountId }: Pick<Caller, "accountId">, { bytes, ms }: Work): void {
    this.#bytes.spend(accountId, bytes);
    this.#ms.spend(accountId, ms);
  }
}
