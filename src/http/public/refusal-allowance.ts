/**
 * Limits the work on chat requests that end in a refusal: bytes of their bodies and processor time, for each key and, four
 * times as much, for each account. Nobody pays for this work, so without a limit a key without credits could take the
 * main thread from everybody.
 *
 * A burst of a whole minute's worth is allowed. The number of refusals does not count: small invalid requests are cheap.
 * Kept in memory, for this process alone, and forgotten when nothing counts any more.
 */
import type { Caller } from "../../accounts/authentication.ts";
import { Refusal } from "../../errors.ts";
import type { Work } from "../../telemetry/request-record.ts";

export interface RefusalLimits {
  /** Body bytes of refused requests of one key. */
  refusedBytesPerMinute: number;
  /** Processor time of the main thread for refused requests of one key. */
  refusedMsPerMinute: number;
}

const accountFactor = 4;

const minuteMs = 60_000;

/** Most keys and most accounts that are remembered, at about 200 bytes each. */
const rememberedMax = 50_000;

/** So many may be remembered before the first look for some that can be forgotten. */
const forgetFrom = 1_000;

export class RefusalAllowance {
  readonly #keys: Levels;
  readonly #accounts: Levels;

  constructor(
    { refusedBytesPerMinute: bytes, refusedMsPerMinute: ms }: RefusalLimits,
    nowMs: () => number = () => performance.now(),
  ) {
    this.#keys = new Levels("this key", { bytes, ms }, nowMs);
    this.#accounts = new Levels(
      "this account",
      { bytes: accountFactor * bytes, ms: accountFactor * ms },
      nowMs,
    );
  }

  /** Keys and accounts that are remembered. */
  get size(): number {
    return this.#keys.size + this.#accounts.size;
  }

  /** Throws `too_many_refusals` while the key or its account has used up its allowance. */
  require({ keyId, accountId }: Caller): void {
    this.#keys.require(keyId);
    this.#accounts.require(accountId);
  }

  /** Counts what was done for a request that was refused. */
  charge({ keyId, accountId }: Pick<Caller, "keyId" | "accountId">, work: Work): void {
    this.#keys.charge(keyId, work);
    this.#accounts.charge(accountId, work);
  }
}

/** Work that still counts. It goes down steadily, by a limit's worth in a minute. */
interface Level extends Work {
  atMs: number;
}

class Levels {
  readonly #whose: string;
  readonly #limit: Work;
  readonly #nowMs: () => number;
  /** In the order in which they began to count. */
  readonly #levels = new Map<string, Level>();
  #forgetAt = forgetFrom;

  constructor(whose: string, limit: Work, nowMs: () => number) {
    this.#whose = whose;
    this.#limit = limit;
    this.#nowMs = nowMs;
  }

  get size(): number {
    return this.#levels.size;
  }

  require(id: string): void {
    const level = this.#levels.get(id);
    if (level === undefined || this.#lower(id, level)) return;
    const { bytes, ms } = this.#limit;
    const waitMs = Math.max(waitMsFor(level.bytes, bytes), waitMsFor(level.ms, ms));
    if (waitMs === 0) return;
    const seconds = Math.ceil(waitMs / 1000);
    throw new Refusal(
      "too_many_refusals",
      `Refused requests of ${this.#whose} took too many bytes or too much time; the limit is ${bytes} bytes and ${ms} ms of processor time per minute. Correct what the refusals name, and try again in ${seconds} s.`,
      { retryAfterSeconds: seconds },
    );
  }

  charge(id: string, { bytes, ms }: Work): void {
    const level = this.#levels.get(id) ?? { bytes: 0, ms: 0, atMs: this.#nowMs() };
    this.#lower(id, level);
    // At most two minutes' worth: the wait never exceeds the minute that `retry-after` can express.
    level.bytes = Math.min(level.bytes + bytes, 2 * this.#limit.bytes);
    level.ms = Math.min(level.ms + ms, 2 * this.#limit.ms);
    if (level.bytes === 0 && level.ms === 0) return;
    this.#levels.set(id, level);
    if (this.#levels.size > this.#forgetAt) this.#forget();
  }

  /** Returns true if nothing counts any more; then the level is forgotten. */
  #lower(id: string, level: Level): boolean {
    const nowMs = this.#nowMs();
    const minutes = (nowMs - level.atMs) / minuteMs;
    level.bytes = Math.max(0, level.bytes - minutes * this.#limit.bytes);
    level.ms = Math.max(0, level.ms - minutes * this.#limit.ms);
    level.atMs = nowMs;
    const isOver = level.bytes === 0 && level.ms === 0;
    if (isOver) this.#levels.delete(id);
    return isOver;
  }

  /** Looks through all of them only when their number has doubled, so that a charge stays cheap. */
  #forget(): void {
    for (const [id, level] of this.#levels) this.#lower(id, level);
    for (const id of this.#levels.keys()) {
      if (this.#levels.size <= rememberedMax / 2) break;
      this.#levels.delete(id);
    }
    this.#forgetAt = Math.max(forgetFrom, 2 * this.#levels.size);
  }
}

/** Time until less than the limit counts. */
function waitMsFor(level: number, limit: number): number {
  return level < limit ? 0 : Math.max(1, ((level - limit) / limit) * minuteMs);
}
