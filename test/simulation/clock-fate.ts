/**
 * The life of the clock of the database's server: it steps, leaps and returns, and all processes
 * start while it is wrong. Checks what docs/operating/jobs.md promises.
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

/** A living process notices a step, or that the clock is right again, in this time. */
const noticedMs = minute;
/** No running process follows it, whatever the clock was when it began. */
const leapMs = 60 * day;

export class ClockFate {
  readonly #world: ClockWorld;
  readonly #random: Random;
  /** How far ledger time and elapsed time may be ahead of true time. */
  #ledgerAheadMsMax = 0;
  #elapsedAheadMsMax = 0;
  #elapsedBehindMsMax = 0;

  constructor(world: ClockWorld, random: Random) {
    this.#world = world;
    this.#random = random;
  }

  /** Elapsed time stands while no process runs and the clock is behind it. */
  get elapsedBehindMsMax(): number {
    return this.#elapsedBehindMsMax;
  }

  /** No window ends, and no hold expires, before its time by the clocks that were followed. */
  check({ atMs, nowMs }: Times): void {
    const trueMs = this.#world.timeline.nowMs;
    // Times are whole milliseconds, and a difference of two can be rounded up.
    assert.ok(atMs - trueMs <= this.#ledgerAheadMsMax + 1, "ledger time is ahead of true time");
    assert.ok(nowMs - trueMs <= this.#elapsedAheadMsMax + 1, "elapsed time is ahead of true time");
  }

  async happen(): Promise<void> {
    const what = this.#random.weighted({ step: 4, leap: 2, start: 2, "start behind": 1, "start ahead": 0.3 });
    this.#world.count(`clock ${what}`);
    if (what === "step") await this.#step();
    else if (what === "leap") await this.#leap();
    else if (what === "start behind") await this.#startBehind();
    else await this.#startWrong(what === "start" ? this.#wrongMs() : leapMs);
    await this.#world.timeline.pause(2 * noticedMs);
    await this.#expect("followed");
  }

  #wrongMs(): number {
    return this.#random.pick([-1, 1]) * this.#random.pick([4 * second, minute, hour, 6 * hour, 20 * hour]);
  }

  /** The clock is set, and followed. */
  #set(aheadMs: number): void {
    const { clock } = this.#world;
    // A clock that is set back does not set the times back, and forward it takes them along.
    this.#elapsedAheadMsMax += Math.max(0, aheadMs - clock.aheadMs);
    this.#ledgerAheadMsMax = Math.max(this.#ledgerAheadMsMax, aheadMs);
    clock.aheadMs = aheadMs;
  }

  async #step(): Promise<void> {
    this.#set(this.#wrongMs());
    await this.#world.timeline.pause(this.#random.delay(10 * minute));
    this.#set(0);
  }

  /** No process follows the clock, as long as none starts. */
  async #leap(): Promise<void> {
    const { timeline, clock } = this.#world;
    clock.aheadMs = leapMs;
    await timeline.pause(noticedMs + this.#random.delay(10 * minute));
    await this.#expect("ahead");
    clock.aheadMs = 0;
  }

  async #startWrong(wrongMs: number): Promise<void> {
    const { timeline, nodes, clock } = this.#world;
    for (const node of nodes) node.kill();
    // A start is refused if its clock is more than a day behind the ledger, which can be ahead.
    this.#set(Math.max(wrongMs, clock.row.ledgerMs - timeline.nowMs - day));
    const downMs = timeline.nowMs;
    await timeline.pause(this.#random.delay(minute));
    await Promise.all(nodes.map((node) => this.#world.startAgain(node)));
    this.#elapsedBehindMsMax += timeline.nowMs - downMs;
    await timeline.pause(this.#random.delay(10 * minute));
    this.#set(0);
    if (wrongMs !== leapMs) return;
    // A later start finds the clock far behind. The record stands from here on.
    for (const node of nodes) node.kill();
    await timeline.pause(noticedMs);
    await this.#expectRefused();
    clock.accept();
    await Promise.all(nodes.map((node) => this.#world.startAgain(node)));
  }

  async #startBehind(): Promise<void> {
    const { timeline, nodes, clock } = this.#world;
    for (const node of nodes) node.kill();
    // What was accepted stands, however far the clock is behind.
    if (clock.row.acceptedMs < clock.row.ledgerMs) {
      clock.aheadMs = -3 * day;
      await timeline.pause(this.#random.delay(minute));
      await this.#expectRefused();
      clock.aheadMs = 0;
    }
    await Promise.all(nodes.map((node) => this.#world.startAgain(node)));
  }

  /** Reasons for which a start can fail otherwise refuse it, too. */
  async #expectRefused(): Promise<void> {
    for (const node of this.#world.nodes) {
      await assert.rejects(node.start(), "a start with the clock far behind");
      node.kill();
    }
  }

  async #expect(expected: "followed" | "ahead"): Promise<void> {
    for (const node of this.#world.nodes) {
      const answer = node.isUp ? await this.#world.ask(node, "GET", "/readyz", {}) : null;
      if (answer?.isWhole !== true || (answer.status !== 200 && answer.status !== 503)) continue;
      const { clock } = JSON.parse(answer.body);
      assert.equal(clock === "ahead", expected === "ahead", `the clock is ${clock}: ${answer.body}`);
    }
  }
}
