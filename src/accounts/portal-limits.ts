/**
 * Limits the changes that sessions of an account make in the portal, on this node. Each change is
 * a commit, and journal entries and keys are never deleted.
 *
 * The level of an account falls steadily, so a burst may use the changes of a whole minute. The
 * memory is bounded: beyond `accountsMax`, the accounts that changed something longest ago are
 * forgotten.
 */
import { OperatorRefusal } from "./refusals.ts";

const changesMax = 60;
const minuteMs = 60_000;
const accountsMax = 10_000;

export class ChangeLimit {
  readonly #nowMs: () => number;
  /** The account that changed something last is last. */
  readonly #levels = new Map<string, { level: number; atMs: number }>();

  constructor(nowMs = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** Counts a change. Throws `too_many_changes` if the account has made a minute's changes. */
  count(account: string): void {
    const atMs = this.#nowMs();
    const before = this.#levels.get(account) ?? { level: 0, atMs };
    const level = Math.max(0, before.level - ((atMs - before.atMs) / minuteMs) * changesMax);
    if (level > changesMax - 1) {
      const seconds = Math.ceil(((level - changesMax + 1) / changesMax) * 60);
      throw new OperatorRefusal(
        "too_many_changes",
        `The account has made ${changesMax} changes within a minute. Try again in ${seconds} s. Nothing has changed.`,
        null,
        seconds,
      );
    }
    this.#levels.delete(account);
    this.#levels.set(account, { level: level + 1, atMs });
    if (this.#levels.size > accountsMax) {
      for (const oldest of this.#levels.keys()) {
        this.#levels.delete(oldest);
        break;
      }
    }
  }
}
