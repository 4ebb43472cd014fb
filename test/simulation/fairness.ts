/**
 * Checks how a process gives its slots (src/engines/upstream/admission-queue.ts): while an account
 * without a running request waits, no other account gets a second slot.
 */
import assert from "node:assert/strict";
import { second } from "../fixtures/times.ts";
import type { Owner, Timeline } from "./timeline.ts";

interface Asked {
  account: string;
  /** The process. */
  owner: Owner;
  sentMs: number;
  state: "waits" | "runs" | "over";
}

/** A request that was sent before this time, and has neither begun nor ended, waits for a slot. */
const surelyWaitsMs = second;

export class Fairness {
  readonly #timeline: Timeline;
  readonly #asked = new Map<string, Asked>();
  /** When each account of a process had a slot last. */
  readonly #freedMs = new WeakMap<Owner, Map<string, number>>();
  /** Requests that were sent before may wait for the database. */
  #sinceMs = 0;

  constructor(timeline: Timeline) {
    this.#timeline = timeline;
  }

  /** `mark`: the text by which a server knows the request. */
  sent(mark: string, account: string, owner: Owner): void {
    this.#asked.set(mark, { account, owner, sentMs: this.#timeline.nowMs, state: "waits" });
  }

  /** The client has its answer, or waits no longer. */
  over(mark: string): void {
    const asked = this.#asked.get(mark);
    if (asked?.state === "waits") this.#asked.delete(mark);
  }

  /** The database was away: nobody knows who waits for what. */
  interrupted(): void {
    this.#sinceMs = this.#timeline.nowMs + 20 * second;
  }

  /** A server got the request. */
  began(mark: string): void {
    const begun = this.#asked.get(mark);
    if (begun === undefined) return;
    begun.state = "runs";
    const { owner, account } = begun;
    if (this.#running(owner, account) < 2) return;
    for (const { account: other, owner: its, sentMs, state } of this.#asked.values()) {
      if (state !== "waits" || its !== owner || this.#running(owner, other) > 0) continue;
      const sinceMs = Math.max(sentMs, this.#freedMs.get(owner)?.get(other) ?? 0, this.#sinceMs);
      const waitedMs = this.#timeline.nowMs - sinceMs;
      assert.ok(
        waitedMs < surelyWaitsMs,
        `${account} gets another slot, and ${other} has waited for its first one for ${waitedMs} ms`,
      );
    }
  }

  /** The server has ended, or the process has let go of it. */
  ended(mark: string): void {
    const asked = this.#asked.get(mark);
    if (asked === undefined) return;
    this.#asked.delete(mark);
    const freedMs = this.#freedMs.get(asked.owner) ?? new Map<string, number>();
    this.#freedMs.set(asked.owner, freedMs.set(asked.account, this.#timeline.nowMs));
  }

  #running(owner: Owner, account: string): number {
    let running = 0;
    for (const asked of this.#asked.values()) {
      if (asked.owner === owner && asked.account === account && asked.state === "runs") running += 1;
    }
    return running;
  }
}
