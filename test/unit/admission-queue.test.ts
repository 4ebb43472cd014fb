/** The order in which requests get slots at a model's servers. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { AdmissionQueue, type Waiter } from "../../src/engines/upstream/admission-queue.ts";
import { share } from "../fixtures/thorough.ts";

/** A request with a name. The letter of the name is its account. */
class Request implements Waiter {
  readonly name: string;
  readonly accountId: string;

  constructor(name: string) {
    this.name = name;
    this.accountId = name.slice(0, 1);
  }

  begin(): void {}

  breakOff(): void {}
}

function nameOf(waiter: Waiter): string {
  assert.ok(waiter instanceof Request);
  return waiter.name;
}

/** A line before `total` slots, with the requests that run. */
class Hall {
  nowMs = 0;
  readonly line = new AdmissionQueue(1000);
  readonly running: Waiter[] = [];
  readonly #total: number;
  readonly #reserved: number;

  constructor(total: number, reserved: number) {
    this.#total = total;
    this.#reserved = reserved;
  }

  get free(): number {
    return this.#total - this.running.length;
  }

  ask(...names: string[]): void {
    for (const name of names) {
      assert.ok(this.line.push(new Request(name), this.nowMs));
      this.fill();
    }
  }

  end(name: string): void {
    const at = this.running.findIndex((request) => nameOf(request) === name);
    const [request] = this.running.splice(at, 1);
    assert.ok(request !== undefined, `${name} runs`);
    this.line.remove(request, this.nowMs);
    this.fill();
  }

  fill(): void {
    for (;;) {
      const next = this.line.next({ total: this.#total, free: this.free, reserved: this.#reserved });
      if (next === undefined) return;
      assert.ok(this.free > 0, "only free slots are given");
      this.running.push(next);
    }
  }

  get names(): string {
    return this.running.map(nameOf).sort().join(" ");
  }
}

test("one account leaves the reserved slots free, and another account gets one at once", () => {
  const hall = new Hall(4, 1);
  hall.ask("a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8");
  assert.equal(hall.names, "a1 a2 a3");
  hall.ask("b1");
  assert.equal(hall.names, "a1 a2 a3 b1");
});

test("a slot that becomes free stays reserved until an account without a running request asks", () => {
  const hall = new Hall(4, 1);
  hall.ask("a1", "a2", "a3", "a4", "b1", "b2");
  hall.end("a1");
  assert.equal(hall.names, "a2 a3 b1");
  hall.ask("c1");
  assert.equal(hall.names, "a2 a3 b1 c1");
});

test("slots beyond the reserved ones go to accounts below their fair share before others", () => {
  const hall = new Hall(6, 0);
  hall.ask("a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "b1", "b2", "b3", "b4");
  assert.equal(hall.names, "a1 a2 a3 a4 a5 a6");
  for (const name of ["a1", "a2", "a3"]) hall.end(name);
  assert.equal(hall.names, "a4 a5 a6 b1 b2 b3");
  hall.end("a4");
  hall.end("b1");
  assert.equal(hall.names, "a5 a6 a7 b2 b3 b4");
});

test("an account that runs nothing comes before one that is below its share", () => {
  const hall = new Hall(4, 0);
  hall.ask("a1", "a2", "a3", "b1");
  hall.ask("b2", "c1");
  hall.end("a1");
  assert.equal(hall.names, "a2 a3 b1 c1");
});

test("without reserved slots one account may have all of them", () => {
  const hall = new Hall(4, 0);
  hall.ask("a1", "a2", "a3", "a4", "a5");
  assert.equal(hall.names, "a1 a2 a3 a4");
});

test("a request that leaves the line frees nothing and is not given a slot", () => {
  const hall = new Hall(1, 0);
  hall.ask("a1");
  const gone = new Request("b1");
  assert.ok(hall.line.push(gone, 0));
  hall.line.remove(gone, 0);
  hall.line.remove(gone, 0);
  hall.end("a1");
  assert.equal(hall.names, "");
  assert.deepEqual(hall.line.load(5), { waiting: 0, oldestWaitMs: 0, starvedMs: 0 });
});

test("all that wait can be taken out at once", () => {
  const hall = new Hall(1, 0);
  hall.ask("a1", "a2", "b1");
  assert.deepEqual(hall.line.takeAll(0).map(nameOf), ["a2", "b1"]);
  assert.equal(hall.line.size, 0);
});

test("the load has the oldest wait, and how long an account has had no slot at all", () => {
  const hall = new Hall(1, 0);
  hall.ask("a1");
  hall.nowMs = 50;
  hall.ask("c1");
  hall.nowMs = 100;
  hall.ask("a2");
  hall.nowMs = 250;
  assert.deepEqual(hall.line.load(hall.nowMs), { waiting: 2, oldestWaitMs: 200, starvedMs: 200 });
  hall.nowMs = 300;
  hall.end("a1");
  assert.equal(hall.names, "c1");
  hall.nowMs = 350;
  // The account of a2 has had none since 300.
  assert.deepEqual(hall.line.load(hall.nowMs), { waiting: 1, oldestWaitMs: 250, starvedMs: 50 });
});

test("whatever is asked for and ends, no account that runs nothing waits beside a free slot", () => {
  const account = fc.constantFrom("a", "b", "c", "d");
  const step = fc.oneof(
    fc.record({ ask: account }),
    fc.record({ end: fc.nat(20) }),
    fc.record({ leave: fc.nat(20) }),
  );
  const slots = fc
    .integer({ min: 1, max: 6 })
    .chain((total) => fc.tuple(fc.constant(total), fc.nat(total - 1)));
  fc.assert(
    fc.property(slots, fc.array(step, { maxLength: 60 }), ([total, reserved], steps) => {
      const hall = new Hall(total, reserved);
      let asked = 0;
      const waiting = new Map<string, Request>();
      for (const each of steps) {
        const freeBefore = hall.free;
        const ranBefore = new Set(hall.running.map(({ accountId }) => accountId));
        const before = new Set(hall.running);
        if ("ask" in each) {
          asked += 1;
          const request = new Request(`${each.ask}${asked}`);
          waiting.set(request.name, request);
          assert.ok(hall.line.push(request, 0));
          hall.fill();
        } else if ("leave" in each) {
          const request = [...waiting.values()][each.leave];
          if (request === undefined) continue;
          waiting.delete(request.name);
          hall.line.remove(request, 0);
          hall.fill();
        } else {
          const request = hall.running[each.end];
          if (request === undefined) continue;
          hall.end(nameOf(request));
        }
        const begun = hall.running.filter((request) => !before.has(request));
        for (const request of begun) waiting.delete(nameOf(request));
        assert.equal(hall.line.size, waiting.size);
        const running = new Set(hall.running.map(({ accountId }) => accountId));
        for (const { accountId } of waiting.values()) {
          assert.ok(running.has(accountId) || hall.free === 0, "an account without a slot waits");
        }
        if (waiting.size > 0) assert.ok(hall.free <= reserved, "a slot that is not reserved stays free");
        if ("ask" in each && begun.length > 0 && ranBefore.has(each.ask)) {
          assert.ok(freeBefore > reserved, "a reserved slot went to an account that runs something");
        }
      }
    }),
    { numRuns: share(1000) },
  );
});
