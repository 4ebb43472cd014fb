/** Work on large messages is spread over turns of the event loop. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { LargeTurns } from "../../src/engines/upstream/server.ts";

const large = 200_000;

test("each large message has a turn of its own, in their order, and small ones need none", async () => {
  const turns = new LargeTurns();
  let turn = 0;
  let isOver = false;
  const count = () => {
    turn += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const done: { name: string; turn: number }[] = [];
  for (const name of ["a", "b", "c"]) turns.run(large, () => done.push({ name, turn }));
  turns.run(10, () => done.push({ name: "small", turn }));
  await turns.wait(10);
  assert.deepEqual(done, [{ name: "small", turn: 0 }]);
  await turns.wait(large);
  isOver = true;
  assert.deepEqual(
    done.map(({ name }) => name),
    ["small", "a", "b", "c"],
  );
  assert.equal(new Set(done.slice(1).map(({ turn }) => turn)).size, 3);
});
