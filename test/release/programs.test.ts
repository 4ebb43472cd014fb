/**
 * The longer runs of the programs for people who work on Inkwell: benches, screenshots, torture
 * tests and the simulation run for a moment, and show what their documentation promises.
 */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { describe, test } from "node:test";
import { benches } from "../fixtures/bench-runs.ts";
import { assertSoundAfterKills, runTool, shownBy } from "../fixtures/checkout-programs.ts";
import { noChromium } from "../fixtures/chromium.ts";
import { noPostgres } from "../fixtures/postgres.ts";
import { newFolder } from "../fixtures/program.ts";
import { releasedFiles } from "../fixtures/released-ledger.ts";

describe("programs of the checkout", { concurrency: 2 }, () => {
  test("npm run torture -- --kill, on PostgreSQL", { skip: noPostgres ?? false }, () =>
    assertSoundAfterKills("PostgreSQL", 1),
  );

  test("npm run torture", async () => {
    const text = await shownBy("tools/torture.ts", "--store", "sqlite", "--ops", "500", "--seed", "1");
    assert.match(
      text,
      /^[\d,]+ operations in [\d,]+ commits, .* no difference and nothing for the audit\.$/m,
    );
  });

  for (const store of ["sqlite", "postgresql"]) {
    const skip = store === "sqlite" ? false : (noPostgres ?? false);
    test(`npm run torture -- --front-end, on ${store}`, { skip }, async () => {
      const size = ["--people", "20", "--requests", "400"];
      const text = await shownBy("tools/torture.ts", "--front-end", "--store", store, ...size);
      assert.match(text, /^The people paid [\d.]+ credits, the key has counted as many, /m);
      assert.match(text, /cap: PT5H [1-9]/);
    });
  }

  test("npm run simulate", async () => {
    const size = ["--worlds", "1", "--requests", "5", "--hours", "1"];
    const text = await shownBy("tools/simulate.ts", "--seed", "1", ...size);
    assert.match(text, /^seed 1: \d+ events, \d+ commits, trace [0-9a-f]{16}, /m);
    assert.match(text, /^1 worlds without a violation in /m);
  });

  // test/unit/exhaust.test.ts searches a world.
  test("npm run exhaust names its worlds", async () => {
    assert.match(await shownBy("tools/exhaust.ts", "--help"), /^Usage: npm run exhaust \[-- WORLD/m);
    const { code, stderr } = await runTool("tools/exhaust.ts", "nowhere");
    assert.notEqual(code, 0);
    assert.match(stderr, /nowhere/);
  });

  test("npm run release:ledger", { skip: noPostgres ?? false }, async () => {
    await using scratch = await newFolder();
    const text = await shownBy("tools/release-ledger.ts", "--folder", scratch.path);
    assert.match(
      text,
      /^SQLite: \d+ answers, the ledger is sound\nPostgreSQL: \d+ answers, the ledger is sound$/m,
    );
    const files = Object.values(releasedFiles).flatMap(({ ledger, known }) => [ledger, known]);
    assert.deepEqual(readdirSync(scratch.path).toSorted(), [...files, "inkwell.yaml"].toSorted());
  });

  test("npm run look", { skip: noChromium ?? false }, async () => {
    await using scratch = await newFolder();
    const text = await shownBy("tools/take-screenshots.ts", "account-new", scratch.path);
    assert.match(text, /^Screenshots of 1 pages are in /m);
    const expected = [1280, 1920, 360, 768].flatMap((width) =>
      ["dark", "light"].map((theme) => `account-new-${width}-${theme}.png`),
    );
    assert.deepEqual(readdirSync(scratch.path).toSorted(), [...expected, "inkwell.yaml"]);
  });

  for (const [name, { args, shows, skip }] of Object.entries(benches)) {
    test(`npm run bench -- ${name}`, { skip: skip ?? false }, async () => {
      assert.match(await shownBy("bench/run.ts", ...name.split(" "), ...args), shows);
    });
  }
});
