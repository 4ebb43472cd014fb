/**
 * Limits the work on chat requests that end in a refusal: bytes of their bodies and processor
 * time. An account may have four times as much as a key. Refused requests are free, so without a
 * limit a key without credits could take the main thread from all other callers.
 *
 * A burst may use the allowance of a whole minute. The number of refusals does not count, because
 * small invalid requests are cheap. The levels are in memory, for this process only, and are
 * forgotten when they reach zero.
 */

import type { Caller } from "../../accounts/keys.ts";
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

/** Most keys, and most accounts, with a level. A level takes about 200 bytes. */
const levelsMax = 50_000;

/** Number of levels at which levels of zero are removed for the first time. */
const sweepFrom = 1_000;

export class RefusalAllowance {
  readonly #keys: Levels;
  readonly #accounts: Levels;

  constructor(limits: RefusalLimits, nowMs: () => number = () => performance.now()) {
    const { key, account } = allowed(limits);
    this.#keys = new Levels("this key", key, nowMs);
    this.#accounts = new Levels("this account", account, nowMs);
  }

  /** Changes the limits. Work that was done before still counts. */
  configure(limits: RefusalLimits): void {
    const { key, account } = allowed(limits);
    this.#keys.limit = key;
    this.#accounts.limit = account;
  }

  /** Keys and accounts with a level. */
  get size(): number {
    return this.#keys.size + this.#accounts.size;
  }

  /** Throws `too_many_refusals` if the key or its account has used up its allowance. */
  require({ keyId, accountId }: Caller): void {
    this.#keys.require(keyId);
    this.#accounts.require(accountId);
  }

  /** Counts the work on a refused request. */
  charge({ keyId, accountId }: Pick<Caller, "keyId" | "accountId">, work: Work): void {
    this.#keys.charge(keyId, work);
    this.#accounts.charge(accountId, work);
  }
}

/** Returns the work that a key and an account may cause in a minute. */
function allowed({ refusedBytesPerMinute: bytes, refusedMsPerMinute: ms }: RefusalLimits) {
  return { key: { bytes, ms }, account: { bytes: accountFactor * bytes, ms: accountFactor * ms } };
}

/** Work that still counts. It decreases steadily, by the limit in a minute. */
interface Level extends Work {
  atMs: number;
}

class Levels {
  limit: Work;
  readonly #whose: string;
  readonly #nowMs: () => number;
  /** In the order in which they were added. */
  readonly #levels = new Map<string, Level>();
  #sweepAt = sweepFrom;

  constructor(whose: string, limit: Work, nowMs: () => number) {
    this.#whose = whose;
    this.limit = limit;
    this.#nowMs = nowMs;
  }

  get size(): number {
    return this.#levels.size;
  }

  require(id: string): void {
    const level = this.#levels.get(id);
    if (level === undefined || this.#lower(id, level)) return;
    const { bytes, ms } = this.limit;
    const waitMs = Math.max(waitMsFor(level.bytes, bytes), waitMsFor(level.ms, ms));
    if (waitMs === 0) return;
    const seconds = Math.ceil(waitMs / 1000);
    throw new Refusal(
      "too_many_refusals",
      `Refused requests of ${this.#whose} took too many bytes or too much time. The limit is ${bytes} bytes and ${ms} ms of processor time per minute. Correct the requests as their errors say, and try again in ${seconds} s.`,
      { retryAfterSeconds: seconds },
    );
  }

  charge(id: string, { bytes, ms }: Work): void {
    const level = this.#levels.get(id) ?? { bytes: 0, ms: 0, atMs: this.#nowMs() };
    this.#lower(id, level);
    // At most twice the limit, so that the wait fits into the 60 s that `retry-after` can express.
    level.bytes = Math.min(level.bytes + bytes, 2 * this.limit.bytes);
    level.ms = Math.min(level.ms + ms, 2 * this.limit.ms);
    if (level.bytes === 0 && level.ms === 0) return;
    this.#levels.set(id, level);
    if (this.#levels.size > this.#sweepAt) this.#sweep();
  }

  /** Lowers the level by the time that has passed. At zero, removes it and returns true. */
  #lower(id: string, level: Level): boolean {
    const nowMs = this.#nowMs();
    const minutes = (nowMs - level.atMs) / minuteMs;
    level.bytes = Math.max(0, level.bytes - minutes * this.limit.bytes);
    level.ms = Math.max(0, level.ms - minutes * this.limit.ms);
    level.atMs = nowMs;
    const isZero = level.bytes === 0 && level.ms === 0;
    if (isZero) this.#levels.delete(id);
    return isZero;
  }

  /**
   * Removes levels of zero, and the oldest levels if there are too many. Runs only when their
   * number has doubled.
   */
  #sweep(): void {
    for (const [id, level] of this.#levels) this.#lower(id, level);
    for (const id of this.#levels.keys()) {
      if (this.#levels.size <= levelsMax / 2) break;
      this.#levels.delete(id);
    }
    this.#sweepAt = Math.max(sweepFrom, 2 * this.#levels.size);
  }
}

/** Returns the time until the level is below the limit. */
function waitMsFor(level: number, limit: number): number {
  return level < limit ? 0 : Math.max(1, ((level - limit) / limit) * minuteMs);
}
