/**
 * The life of the clock of the database's server: it steps and returns, operators accept it, and
 * all processes start while it is wrong. Checks what docs/operating/clock.md promises.
 */
import assert from "node:assert/strict";
import type { Times } from "../../src/ledger/snapshot.ts";
import { day, hour, minute, second } from "../fixtures/times.ts";
import type { DatabaseClock } from "./database-clock.ts";
import type { Answered } from "./http-client.ts";
import type { SimulatedNode } from "./node.ts";
import type { Random } from "./random.ts";
import type { Timeline } from "./timeline.ts";

/** The parts of a world that its clock meets. */
export interface ClockWorld {
  readonly timeline: Timeline;
  readonly clock: DatabaseClock;
  readonly nodes: readonly SimulatedNode[];
  /** Sends a request of an operator until it has an answer. Null: it never had one. */
  ask(node: SimulatedNode | null, method: string, path: string, body: object): Promise<Answered | null>;
  startAgain(node: SimulatedNode): Promise<void>;
  count(outcome: string): void;
}

/** Smaller steps are believed. */
const believedMs = 5 * second;
/** A living process notices a step, or that the clock is right again, in this time. */
const noticedMs = minute;
/** Starts do not believe a clock that is so far ahead. */
const farAheadMs = 60 * day;

export class ClockFate {
  readonly #world: ClockWorld;
  readonly #random: Random;
  /** A right clock is ahead of true time by this: operators may have accepted another time. */
  #rightMs = 0;
  /** How far ledger time and elapsed time may be ahead of true time. */
  #ledgerAheadMsMax = 0;
  #elapsedAheadMsMax = 0;
  /** How far the clock has drifted ahead since a time was believed last. */
  #driftMsMax = 0;

  constructor(world: ClockWorld, random: Random) {
    this.#world = world;
    this.#random = random;
  }

  /** No window ends, and no hold expires, before its time by the clocks that were believed. */
  check({ atMs, nowMs }: Times): void {
    const trueMs = this.#world.timeline.nowMs;
    assert.ok(atMs - trueMs <= this.#ledgerAheadMsMax + believedMs, "ledger time is ahead of true time");
    assert.ok(nowMs - trueMs <= this.#elapsedAheadMsMax + believedMs, "elapsed time is ahead of true time");
  }

  async happen(): Promise<void> {
    const what = this.#random.weighted({ drift: 1, step: 4, accept: 2, start: 2, far: 1 });
    this.#world.count(`clock ${what}`);
    if (what === "drift") this.#drift();
    else if (what === "step") await this.#step();
    else if (what === "accept") await this.#accept();
    else await this.#startWrong(what === "far" ? farAheadMs : this.#wrongMs());
  }

  #drift(): void {
    const driftMs = this.#random.pick([-4, 4]) * second;
    this.#driftMsMax = Math.max(this.#driftMsMax, driftMs);
    this.#set(this.#rightMs + driftMs);
  }

  #wrongMs(): number {
    return this.#random.pick([-1, 1]) * this.#random.pick([11 * second, hour, 6 * hour, 3 * day]);
  }

  /** `aheadMs`: of true time. */
  #set(aheadMs: number): void {
    this.#world.clock.aheadMs = aheadMs;
  }

  #believe(aheadMs: number): void {
    // Elapsed time goes on with a clock that is set forward or has drifted, and never goes back.
    this.#elapsedAheadMsMax += Math.max(this.#driftMsMax, aheadMs - this.#rightMs);
    this.#driftMsMax = 0;
    this.#ledgerAheadMsMax = Math.max(this.#ledgerAheadMsMax, aheadMs);
    this.#rightMs = aheadMs;
  }

  /** Nothing believes the clock, not even a process that starts. Then it is right again. */
  async #step(): Promise<void> {
    const { timeline, nodes } = this.#world;
    const wrongMs = this.#wrongMs() + this.#random.pick([0, farAheadMs]);
    this.#set(this.#rightMs + wrongMs);
    await timeline.pause(this.#random.delay(10 * minute));
    if (nodes.filter(({ isUp }) => isUp).length > 1 && this.#random.chance(0.5)) {
      const node = this.#random.pick(nodes);
      node.kill();
      await this.#world.startAgain(node);
      await timeline.pause(this.#random.delay(10 * minute));
    }
    if (Math.abs(wrongMs) > 2 * minute && this.#random.chance(0.5)) {
      const answer = await this.#offer(timeline.nowMs + this.#rightMs);
      assert.notEqual(answer?.status, 200, "a wrong clock is accepted");
    }
    this.#set(this.#rightMs);
    await this.#expectTrust();
  }

  /** The clock was wrong before, or monotonic time is: an operator believes the clock. */
  async #accept(): Promise<void> {
    const aheadMs = this.#rightMs + this.#wrongMs();
    this.#set(aheadMs);
    await this.#world.timeline.pause(noticedMs);
    this.#believe(aheadMs);
    await this.#acceptPresent();
    await this.#expectTrust();
  }

  async #acceptPresent(): Promise<void> {
    for (let attempt = 0; attempt < 20; attempt += 1) {
      const answer = await this.#offer(this.#world.clock.nowMs);
      // Accepted now, or by a request whose answer was lost.
      if (answer?.status === 200 || answer?.status === 409) return;
      assert.notEqual(answer?.status, 400, answer?.body ?? "");
    }
  }

  /** No process is left that knows better, so the next one believes the clock if it can. */
  async #startWrong(wrongMs: number): Promise<void> {
    const { timeline, nodes } = this.#world;
    for (const node of nodes) node.kill();
    const before = this.#rightMs;
    this.#set(before + wrongMs);
    if (wrongMs !== farAheadMs) this.#believe(before + wrongMs);
    await timeline.pause(this.#random.delay(minute));
    await Promise.all(nodes.map((node) => this.#world.startAgain(node)));
    await timeline.pause(this.#random.delay(10 * minute));
    this.#set(this.#rightMs);
    // Nobody knows for how long no process ran.
    if (wrongMs === farAheadMs) await this.#acceptPresent();
    await this.#expectTrust();
  }

  #offer(time: number): Promise<Answered | null> {
    const body = { time: new Date(time).toISOString() };
    return this.#world.ask(null, "POST", "/admin/clock/accept", body);
  }

  async #expectTrust(): Promise<void> {
    await this.#world.timeline.pause(2 * noticedMs);
    for (const node of this.#world.nodes) {
      const answer = node.isUp ? await this.#world.ask(node, "GET", "/admin/clock", {}) : null;
      if (answer?.isWhole !== true || answer.status !== 200) continue;
      assert.equal(JSON.parse(answer.body).trusted, true, `a right clock is not trusted: ${answer.body}`);
    }
  }
}
