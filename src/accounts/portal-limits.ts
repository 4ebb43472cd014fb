/**
 * Limits the changes that sessions make in the portal, and the sign-ins of a key, on this node.
 * Each change is a commit, and journal entries and keys are never deleted.
 *
 * A level falls steadily, so a burst may use the changes of a whole minute. The memory is bounded:
 * beyond `scopesMax`, the scopes that were counted longest ago are forgotten.
 */
import { setNewest } from "../collections.ts";
import { OperatorRefusal } from "./refusals.ts";

const changesMax = 60;
const minuteMs = 60_000;
const scopesMax = 10_000;

export class ChangeLimit {
  readonly #nowMs: () => number;
  /** The scope that was counted last is last. */
  readonly #levels = new Map<string, { level: number; atMs: number }>();

  constructor(nowMs = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /**
   * Counts a change. Throws `too_many_changes` if the scope has made a minute's changes. `scope`:
   * an account, or what else has changes of its own.
   */
  count(scope: string): void {
    const seconds = this.secondsUntil(scope);
    if (seconds === 0) return;
    throw new OperatorRefusal(
      "too_many_changes",
      `${changesMax} changes were made within a minute. Try again in ${seconds} s. Nothing has changed.`,
      null,
      seconds,
    );
  }

  /** Counts something, and returns 0. Counts nothing and returns the time to wait at the limit. */
  secondsUntil(scope: string): number {
    const atMs = this.#nowMs();
    const before = this.#levels.get(scope) ?? { level: 0, atMs };
    const level = Math.max(0, before.level - ((atMs - before.atMs) / minuteMs) * changesMax);
    if (level > changesMax - 1) return Math.ceil(((level - changesMax + 1) / changesMax) * 60);
    setNewest(this.#levels, scope, { level: level + 1, atMs }, scopesMax);
    return 0;
  }
}
