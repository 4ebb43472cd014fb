/** Simulated worlds (test/simulation): a fixed one, and some that nobody has seen before. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isThorough, share } from "../fixtures/thorough.ts";
import { defects, simulationOf } from "../simulation/defects.ts";
import { bundleProgram } from "../simulation/process.ts";
import { simulate, troubles } from "../simulation/world.ts";

const size = { requests: share(200), hours: 1 };

describe("simulated worlds", async () => {
  const program = await bundleProgram();

  test("the same seed gives the same trace", async () => {
    const [one, other] = [
      await simulate(program, { seed: 1, ...size }),
      await simulate(program, { seed: 1, ...size }),
    ];
    assert.equal(one.digest, other.digest);
    assert.ok(one.commits > size.requests, `${one.commits} commits`);
  });

  const fresh = Date.now() & 0x3fff_ffff;
  const fixed = isThorough ? [2, 7] : [];
  for (const seed of [...fixed, ...Array.from({ length: share(10) }, (_, n) => fresh + n)]) {
    test(`seed ${seed} has no violation`, async () => {
      await simulate(program, { seed, ...size });
    });
  }

  test("a defect is found", async () => {
    const defect = defects.find(({ edit }) => edit.file === "src/chat/hold-extender.ts");
    assert.ok(defect !== undefined);
    await using run = await simulationOf([defect.edit]);
    // Quiet worlds find it too, and sooner.
    const without = troubles.filter((trouble) => trouble !== "clients");
    const worlds = async () => {
      for (let seed = 7; seed <= 17; seed += 1) await run({ ...size, seed, without });
    };
    await assert.rejects(worlds, /tokens of \S+ were sent/);
  });
});
