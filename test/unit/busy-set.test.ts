/**
 * A set of things that come and go: it has the members and the order of a Set. Members that
 * have left it do not survive the collections of the young generation.
 */
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { getHeapSpaceStatistics, setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { BusySet } from "../../src/collections.ts";

setFlagsFromString("--expose-gc");
const collect: (options?: { type: "minor" }) => void = runInNewContext("gc");

describe("a busy set", () => {
  it("has the members and the order of a Set, through many changes", () => {
    const busy = new BusySet<number>();
    const set = new Set<number>();
    for (let n = 0; n < 2000; n += 1) {
      // Grows to hundreds of members, and shrinks to a few again.
      const leaving = n % 1000 < 500 ? n - 400 : n - 7;
      for (let each = n - 450; each <= leaving; each += 1) assert.equal(busy.delete(each), set.delete(each));
      busy.add(n);
      set.add(n);
      assert.equal(busy.size, set.size);
      assert.deepEqual([...busy], [...set]);
    }
  });

  it("skips members that are deleted during an iteration", () => {
    const busy = new BusySet<number>();
    for (let n = 0; n < 100; n += 1) busy.add(n);
    const seen: number[] = [];
    for (const each of busy) {
      seen.push(each);
      for (let other = each + 1; other < 100; other += 1) if (other % 10 !== 0) busy.delete(other);
    }
    assert.deepEqual(seen, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
  });

  it("keeps nothing that has left it", () => {
    const busy = new BusySet<object>();
    const present: object[] = [];
    const turnOver = (count: number) => {
      for (let n = 0; n < count; n += 1) {
        const member = { text: Array.from({ length: 500 }, () => ({ n })) };
        const left = present[n % 8];
        present[n % 8] = member;
        busy.add(member);
        if (left !== undefined) busy.delete(left);
      }
    };
    // Some 20 MB come and go. With a Set, nearly all of it is in the old generation then. Few
    // members are there at a collection, because V8 sometimes promotes all of them at once, and
    // rarely more of them: so the least of some rounds counts.
    const roundsBytes = Array.from({ length: 4 }, () => {
      turnOver(64);
      collect();
      const before = oldSpaceBytes();
      for (let step = 0; step < 5; step += 1) {
        turnOver(200);
        collect({ type: "minor" });
      }
      return oldSpaceBytes() - before;
    });
    const moreBytes = Math.min(...roundsBytes);
    assert.ok(moreBytes < 4_000_000, `${moreBytes} bytes more in the old generation`);
  });
});

function oldSpaceBytes(): number {
  const spaces = getHeapSpaceStatistics().filter(({ space_name }) => space_name === "old_space");
  return spaces.reduce((sum, { space_used_size }) => sum + space_used_size, 0);
}
