/** Slots shared among accounts: running, waiting and paused jobs. No model, no clock. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  DecodeSlots,
  defaultSlotsLimits,
  type SlotUser,
} from "../../src/engines/llama/process/decode-slots.ts";

const { runMinMs, turnMs, blockedMaxMs, pausedMaxMs } = defaultSlotsLimits;

interface TestJob extends SlotUser {
  isDue: boolean;
  stopping: boolean;
  isPrefilling: boolean;
}

/**
 * Slots with a decoder that gives each job a sequence at once. Returns moves such as "start a1".
 */
class Hall {
  readonly slots: DecodeSlots<TestJob>;
  nowMs = 0;
  /** Decode time that each return costs. */
  switchMs = 0;
  readonly jobs = new Map<string, TestJob>();
  readonly size: number;
  readonly #sequences = new Map<string, number>();
  #lastId = 0;

  constructor(slots: number, queueMax = 100) {
    this.size = slots;
    this.slots = new DecodeSlots(slots, queueMax);
  }

  /** Names are an account's letter and a number. */
  ask(...names: string[]): string[] {
    for (const name of names) {
      const job = {
        job: { id: ++this.#lastId, accountId: name.charAt(0) },
        isDue: true,
        stopping: false,
        isPrefilling: false,
      };
      this.jobs.set(name, job);
      assert.ok(this.slots.enqueue(job, this.nowMs), name);
    }
    return this.look();
  }

  job(name: string): TestJob {
    const job = this.jobs.get(name);
    assert.ok(job !== undefined);
    return job;
  }

  after(ms: number): string[] {
    this.nowMs += ms;
    return this.look();
  }

  end(name: string): string[] {
    this.#sequences.delete(name);
    this.slots.ended(this.job(name).job.id, this.nowMs);
    return this.look();
  }

  look(): string[] {
    const told: string[] = [];
    for (const move of this.slots.moves(this.nowMs)) {
      const name = [...this.jobs].find(([, job]) => job === move.job)?.[0] ?? "?";
      told.push(`${move.type} ${name}${move.type === "resume" && move.anywhere ? " anywhere" : ""}`);
      if (move.type === "pause") continue;
      if (move.type === "start" || move.anywhere) this.#sequences.set(name, this.#idle(name));
      const sequence = this.#sequences.get(name);
      assert.ok(sequence !== undefined);
      this.slots.placed(move.job.job.id, sequence, move.type === "resume" ? this.switchMs : 0);
    }
    assert.ok(this.running.length <= this.size, "never more than there are slots");
    const used = this.running.map((name) => this.#sequences.get(name));
    assert.equal(new Set(used).size, used.length, "no two in one sequence");
    return told;
  }

  get running(): string[] {
    const running = new Set(this.slots.running());
    return [...this.jobs].filter(([, job]) => running.has(job)).map(([name]) => name);
  }

  #idle(name: string): number {
    const used = this.running.filter((other) => other !== name).map((other) => this.#sequences.get(other));
    for (let sequence = 0; sequence < this.size; sequence++) if (!used.includes(sequence)) return sequence;
    assert.fail("no idle sequence");
  }
}

test("one account alone gets all slots in order, without pauses", () => {
  const hall = new Hall(2);
  assert.deepEqual(hall.ask("a1", "a2", "a3"), ["start a1", "start a2"]);
  assert.deepEqual(hall.after(10 * turnMs), []);
  assert.deepEqual(hall.end("a1"), ["start a3"]);
});

test("a new account gets a slot at once from an account above its share after the shortest run", () => {
  const hall = new Hall(4);
  hall.ask("a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8");
  hall.after(runMinMs);
  assert.deepEqual(hall.ask("b1"), ["pause a4", "start b1"]);
  assert.deepEqual(hall.end("b1"), ["resume a4"], "before the account's new requests");
});

test("an answer is not paused before the shortest run", () => {
  const hall = new Hall(2);
  hall.ask("a1", "a2");
  assert.deepEqual(hall.after(runMinMs - 1), []);
  assert.deepEqual(hall.ask("b1"), []);
  assert.deepEqual(hall.after(1), ["pause a2", "start b1"]);
});

test("an account gives up only the slots above its share", () => {
  const hall = new Hall(4);
  hall.ask("a1", "a2", "a3", "a4");
  hall.after(runMinMs);
  assert.deepEqual(hall.ask("b1", "b2", "b3", "b4"), ["pause a4", "start b1", "pause a3", "start b2"]);
  assert.deepEqual(hall.after(10 * turnMs), []);
  assert.deepEqual(hall.running.sort(), ["a1", "a2", "b1", "b2"]);
});

test("eight new accounts each get a turn within two shortest runs", () => {
  const hall = new Hall(4);
  hall.ask("a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8");
  hall.after(runMinMs);
  const begun = hall.ask("b1", "c1", "d1", "e1", "f1", "g1", "h1", "i1");
  begun.push(...hall.after(runMinMs), ...hall.after(runMinMs));
  for (const name of ["b1", "c1", "d1", "e1", "f1", "g1", "h1", "i1"])
    assert.ok(begun.includes(`start ${name}`), name);
});

test("an answer without its first token keeps its slot against an equal account for a turn", () => {
  const hall = new Hall(1);
  hall.ask("a1");
  hall.job("a1").isPrefilling = true;
  assert.deepEqual(hall.after(turnMs - 1), []);
  assert.deepEqual(hall.ask("b1"), []);
  assert.deepEqual(hall.after(1), ["pause a1", "start b1"]);
});

test("an account with a paused answer causes no pause for a new request", () => {
  const hall = new Hall(1);
  hall.ask("a1", "a2", "a3");
  hall.after(runMinMs);
  hall.ask("b1", "b2", "b3");
  const moves = Array.from({ length: 20 }, () => hall.after(runMinMs)).flat();
  assert.ok(moves.length >= 8);
  assert.deepEqual([...hall.slots.begun()].map(({ job }) => job.accountId).sort(), ["a", "b"]);
});

test("more accounts than slots take equal turns", () => {
  const hall = new Hall(2);
  const accounts = ["a1", "b1", "c1", "d1"];
  hall.ask(...accounts);
  const ran = new Map<string, number>(accounts.map((name) => [name, 0]));
  for (let ms = 0; ms < 60 * turnMs; ms += 100) {
    for (const name of hall.running) ran.set(name, (ran.get(name) ?? 0) + 100);
    hall.after(100);
  }
  for (const [name, ms] of ran) assert.ok(ms > 20 * turnMs && ms < 40 * turnMs, `${name} ran for ${ms} ms`);
});

test("a slow switch is followed by a run of nine times its duration", () => {
  const hall = new Hall(1);
  hall.switchMs = 1000;
  hall.ask("a1");
  hall.after(runMinMs);
  hall.ask("b1");
  hall.end("b1");
  assert.deepEqual(hall.running, ["a1"]);
  assert.deepEqual(hall.ask("b2"), []);
  assert.deepEqual(hall.after(8999), []);
  assert.deepEqual(hall.after(1), ["pause a1", "start b2"]);
});

test("the account with the most slots gives up its youngest answer first, one without a first token last", () => {
  const hall = new Hall(4);
  hall.ask("a1", "b1", "b2", "b3");
  hall.job("b3").isPrefilling = true;
  hall.after(runMinMs);
  assert.deepEqual(hall.ask("c1"), ["pause b2", "start c1"]);
});

test("a blocked answer gives way to any other, but not after a short block", () => {
  const hall = new Hall(1);
  hall.ask("a1", "a2");
  hall.job("a1").isDue = false;
  assert.deepEqual(hall.after(blockedMaxMs), [], "the rest is counted from when it is seen");
  hall.job("a1").isDue = true;
  assert.deepEqual(hall.after(blockedMaxMs), []);
  hall.job("a1").isDue = false;
  hall.after(1);
  assert.deepEqual(hall.after(blockedMaxMs), ["pause a1", "start a2"]);
  assert.deepEqual(hall.end("a2"), [], "it rests still");
  hall.job("a1").isDue = true;
  assert.deepEqual(hall.look(), ["resume a1"]);
});

test("an account with only blocked answers cannot start more without limit", () => {
  const hall = new Hall(2);
  hall.ask("a1", "a2", "a3", "a4", "a5", "a6", "a7");
  for (let round = 0; round < 10; round++) {
    for (const job of hall.jobs.values()) job.isDue = false;
    hall.after(blockedMaxMs);
  }
  const { running, waiting, paused } = hall.slots.load(hall.nowMs);
  assert.deepEqual({ running, waiting, paused }, { running: 2, waiting: 3, paused: 2 });
  assert.deepEqual(hall.ask("b1").length, 2, "another account begins");
});

test("an answer returns to its own sequence, or to another one rather than wait long beside an empty slot", () => {
  const hall = new Hall(2);
  hall.ask("a1", "a2");
  hall.after(runMinMs);
  assert.deepEqual(hall.ask("b1"), ["pause a2", "start b1"]);
  assert.deepEqual(hall.ask("a3"), []);
  assert.deepEqual(hall.end("a1"), ["start a3"], "nothing is evaluated again where there is other work");
  assert.deepEqual(hall.end("a3"), [], "b1 may end soon");
  assert.deepEqual(hall.after(turnMs), ["resume a2 anywhere"]);
});

test("an answer that was paused too long returns first, to any sequence, and takes no more turns", () => {
  const hall = new Hall(2);
  hall.ask("a1", "a2");
  hall.after(runMinMs);
  hall.ask("b1");
  assert.deepEqual(hall.after(pausedMaxMs - 1), []);
  assert.deepEqual(hall.after(1), ["pause a1", "resume a2 anywhere"]);
  assert.deepEqual(hall.ask("c1"), ["pause b1", "start c1"]);
  assert.deepEqual(hall.after(turnMs), ["pause c1", "resume b1"], "a2 has been paused enough");
});

test("a free slot goes to the account with the fewest slots, even if another has waited longer", () => {
  const hall = new Hall(4);
  for (const name of ["a1", "a2", "b1", "c1", "a3", "c2"]) hall.ask(name);
  assert.deepEqual(hall.end("b1"), ["start c2"]);
});

test("two accounts that were paused for a minute each take no more turns", () => {
  const hall = new Hall(1);
  hall.ask("a1");
  hall.after(runMinMs);
  hall.ask("b1");
  const turns = Array.from({ length: (4 * pausedMaxMs) / turnMs }, () => hall.after(turnMs).length);
  assert.ok(turns.slice(0, pausedMaxMs / turnMs).every((moves) => moves === 2));
  assert.ok(turns.slice(-pausedMaxMs / turnMs).every((moves) => moves === 0));
  hall.ask("c1");
  assert.deepEqual(hall.running, ["c1"], "a newcomer has its turn nevertheless");
});

test("a queued request can leave, and a stopped one gets no slot", () => {
  const hall = new Hall(1);
  hall.ask("a1", "b1", "c1");
  assert.equal(hall.slots.remove(hall.job("c1")), true);
  assert.equal(hall.slots.remove(hall.job("c1")), false);
  assert.deepEqual(hall.after(runMinMs), ["pause a1", "start b1"]);
  hall.job("a1").stopping = true;
  assert.deepEqual(hall.end("b1"), []);
  hall.end("a1");
  assert.equal(hall.slots.isAnyoneWaiting, false);
});

test("load reports the longest wait and the longest time of an account without a slot", () => {
  const hall = new Hall(1);
  hall.ask("a1", "a2");
  hall.after(400);
  assert.deepEqual(hall.slots.load(hall.nowMs), {
    running: 1,
    waiting: 1,
    paused: 0,
    oldestWaitMs: 400,
    starvedMs: 0,
  });
  hall.ask("b1");
  hall.after(50);
  assert.deepEqual(hall.slots.load(hall.nowMs), {
    running: 1,
    waiting: 2,
    paused: 0,
    oldestWaitMs: 450,
    starvedMs: 50,
  });
});

test("returns begun jobs youngest first, so that they start again in order", () => {
  const hall = new Hall(2);
  hall.ask("a1", "a2", "a3");
  const begun = hall.slots.takeBegun(hall.nowMs);
  assert.deepEqual(begun, [hall.job("a2"), hall.job("a1")]);
  for (const job of begun) hall.slots.putBack(job, hall.nowMs);
  assert.deepEqual(hall.look(), ["start a1", "start a2"]);
});

test("property: every slot is used while any job could run", () => {
  let state = 1;
  const random = (below: number): number => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return (state >> 8) % below;
  };
  for (let round = 0; round < 30; round++) {
    const hall = new Hall(1 + random(4), 1000);
    const names: string[] = [];
    for (let step = 0; step < 300; step++) {
      const one = names[random(Math.max(1, names.length))];
      const what = random(6);
      if (what < 2 || one === undefined) {
        const name = `${"abcde".charAt(random(5))}${names.length}`;
        names.push(name);
        hall.ask(name);
      } else if (what === 2 && hall.slots.find(hall.job(one).job.id) !== undefined) hall.end(one);
      else if (what === 3) hall.job(one).isDue = !hall.job(one).isDue;
      else hall.after(random(3000));
      hall.look();
      const { running, waiting, paused = 0 } = hall.slots.load(hall.nowMs);
      const accounts = new Set([...hall.slots.begun()].map(({ job }) => job.accountId));
      assert.ok(paused <= 8 * Math.max(1, accounts.size));
      assert.equal(running, hall.running.length);
      if (running === hall.size) continue;
      // For what comes back anywhere.
      hall.after(turnMs);
      if (hall.running.length === hall.size) continue;
      for (const job of hall.slots.begun())
        assert.ok(
          !hall.slots.isPaused(job.job.id) || !job.isDue,
          "a slot is free and a paused answer could run",
        );
      assert.ok(waiting === 0 || paused > 0, "a slot is free and a request could begin");
    }
  }
});
