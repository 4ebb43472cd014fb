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
  readonly #key: Buckets;
  readonly #account: Buckets;

  constructor(given: RefusalLimits, nowMs?: () => number) {
    const options = { waitMsMax, nowMs };
    this.#key = {
      whose: "this key",
      bytes: new TokenBucket(limits.refusedBytes, options),
      ms: new TokenBucket(limits.refusedMs, options),
    };
    this.#account = {
      whose: "this account",
      bytes: new TokenBucket(limits.accountRefusedBytes, options),
      ms: new TokenBucket(limits.accountRefusedMs, options),
    };
    this.configure(given);
  }

  /** Changes the limits. Work that was done before still counts. */
  configure({ refusedBytesPerMinute, refusedMsPerMinute }: RefusalLimits): void {
    this.#key.bytes.most = refusedBytesPerMinute;
    this.#key.ms.most = refusedMsPerMinute;
    this.#account.bytes.most = accountFactor * refusedBytesPerMinute;
    this.#account.ms.most = accountFactor * refusedMsPerMinute;
  }

  /** Throws `too_many_refusals` if the key or its account has used up its allowance. */
  require({ keyId, accountId }: Caller): void {
    requireAllowance(this.#key, keyId);
    requireAllowance(this.#account, accountId);
  }

  /** Counts the work on a refused request. */
  charge({ keyId, accountId }: Pick<Caller, "keyId" | "accountId">, { bytes, ms }: Work): void {
    this.#key.bytes.spend(keyId, bytes);
    this.#key.ms.spend(keyId, ms);
    this.#account.bytes.spend(accountId, bytes);
    this.#account.ms.spend(accountId, ms);
  }
}

interface Buckets {
  whose: string;
  bytes: TokenBucket;
  ms: TokenBucket;
}

function requireAllowance({ whose, bytes, ms }: Buckets, id: string): void {
  const waitMs = Math.max(bytes.waitMs(id), ms.waitMs(id));
  if (waitMs === 0) return;
  const seconds = Math.ceil(waitMs / 1000);
  throw new Refusal(
    "too_many_refusals",
    `Refused requests of ${whose} took too many bytes or too much time. The limit is ${bytes.most} bytes and ${ms.most} ms of processor time per minute. Correct the requests as their errors say, and try again in ${seconds} s.`,
    { retryAfterSeconds: seconds },
  );
}
