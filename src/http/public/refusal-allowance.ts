/**
 * Limits the work on chat requests that end in a refusal: bytes of their bodies and processor
 * time. Refused requests are free, so without a limit a key without credits could take the main
 * thread from all other callers.
 *
 * The number of refusals does not count, because small invalid requests are cheap. The
 * allowances are in memory, for this process only.
 */
import { type CallerScopes, scopesOf } from "../../accounts/caller-scopes.ts";
import { Refusal } from "../../errors.ts";
import { accountFactor, limits } from "../../limits/limits.ts";
import { TokenBucket } from "../../limits/token-bucket.ts";
import type { Work } from "../../telemetry/request-record.ts";

export interface RefusalLimits {
  /** Body bytes of refused requests of one key. */
  refusedBytesPerMinute: number;
  /** Processor time of the main thread for refused requests of one key. */
  refusedMsPerMinute: number;
}

/** The longest time that `retry-after` can express. */
const waitMsMax = 60_000;

export class RefusalAllowance {
  readonly #narrow: Buckets;
  readonly #wide: Buckets;

  constructor(given: RefusalLimits, nowMs?: () => number) {
    const options = { waitMsMax, nowMs };
    this.#narrow = {
      bytes: new TokenBucket(limits.refusedBytes, options),
      ms: new TokenBucket(limits.refusedMs, options),
    };
    this.#wide = {
      bytes: new TokenBucket(limits.accountRefusedBytes, options),
      ms: new TokenBucket(limits.accountRefusedMs, options),
    };
    this.configure(given);
  }

  /** Changes the limits. Work that was done before still counts. */
  configure({ refusedBytesPerMinute, refusedMsPerMinute }: RefusalLimits): void {
    this.#narrow.bytes.most = refusedBytesPerMinute;
    this.#narrow.ms.most = refusedMsPerMinute;
    this.#wide.bytes.most = accountFactor * refusedBytesPerMinute;
    this.#wide.ms.most = accountFactor * refusedMsPerMinute;
  }

  /** Throws `too_many_refusals` if the key or its account has used up its allowance. */
  require(caller: CallerScopes): void {
    const [narrow, wide] = scopesOf(caller);
    requireAllowance(this.#narrow, narrow);
    requireAllowance(this.#wide, wide);
  }

  /** Counts the work on a refused request. */
  charge(caller: CallerScopes, { bytes, ms }: Work): void {
    const [narrow, wide] = scopesOf(caller);
    this.#narrow.bytes.spend(narrow, bytes);
    this.#narrow.ms.spend(narrow, ms);
    this.#wide.bytes.spend(wide, bytes);
    this.#wide.ms.spend(wide, ms);
  }
}

interface Buckets {
  bytes: TokenBucket;
  ms: TokenBucket;
}

function requireAllowance({ bytes, ms }: Buckets, whose: string): void {
  const waitMs = Math.max(bytes.waitMs(whose), ms.waitMs(whose));
  if (waitMs === 0) return;
  const seconds = Math.ceil(waitMs / 1000);
  throw new Refusal(
    "too_many_refusals",
    `Refused requests of this ${whose.split(" ")[0]} took too many bytes or too much time. The limit is ${bytes.most} bytes and ${ms.most} ms of processor time per minute. Correct the requests as their errors say, and try again in ${seconds} s.`,
    { retryAfterSeconds: seconds },
  );
}
