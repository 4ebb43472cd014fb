/**
 * The programs for people who work on Inkwell: the fuzzer and the kills of the service run for a
 * moment, and show what their documentation promises. test/release/programs.test.ts runs the
 * others. A new bench or npm script needs a run there or here, or a reason.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { describe, test } from "node:test";
import { benches } from "../fixtures/bench-runs.ts";
import { assertSoundAfterKills, runTool, shownBy } from "../fixtures/checkout-programs.ts";

const root = path.join(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(path.join(root, file), "utf8");

/** npm scripts that are not run here, each with its test or a reason. */
const otherScripts: Record<string, string> = {
  start: "test/service/first-start.test.ts",
  inkwell: "test/release/terminal.test.ts",
  build: "test/release/package.test.ts",
  prepack: "test/release/package.test.ts",
  sbom: "test/release/package.test.ts",
  check: "a part of npm test",
  docs: "test/service/docs.test.ts",
  look: "test/release/programs.test.ts",
  bench: "test/release/programs.test.ts",
  exhaust: "test/release/programs.test.ts",
  simulate: "test/release/programs.test.ts",
  test: "this run",
  "release:ledger": "test/release/programs.test.ts",
  "test:release": "before a release (docs/releasing.md)",
  gpu: "downloads 540 MB",
  clients: "installs programs of others from package registries",
  servers: "builds model servers, in many minutes",
};

describe("programs of the checkout", () => {
  test("npm run fuzz", async () => {
    const text = await shownBy("tools/fuzz.ts", "archive", "--minutes", "0.01", "--seed", "1");
    assert.match(text, /^archive: \d+ inputs, \d+ outcomes, 0 findings \(seed 1\)$/m);
  });

  // Two guarantees of docs/ledger.md name it as their check.
  test("npm run torture -- --kill, on SQLite", () => assertSoundAfterKills("SQLite", 2));

  test("every bench is documented and has a run", async () => {
    const { code, stderr } = await runTool("bench/run.ts", "none");
    assert.equal(code, 2);
    const [, list = ""] = /^Usage: npm run bench -- (.*) \[options\]$/m.exec(stderr) ?? [];
    const names = Object.keys(benches).toSorted();
    const documented = [...read("bench/README.md").matchAll(/^\| `(.+?)` \|/gm)].map(([, name]) => name);
    assert.deepEqual(documented.toSorted(), names);
    assert.deepEqual(
      list.split(" | ").toSorted(),
      names.filter((name) => !name.includes(" ")),
    );
  });

  for (const [file, message] of [
    ["test/run.ts", "There are no tests in nosuch."],
    ["tools/take-screenshots.ts", 'No page has "nosuch" in its name: '],
  ] as const)
    test(`${file} refuses a name that it does not know in one sentence`, async () => {
      const { code, stderr } = await runTool(file, "nosuch");
      assert.deepEqual([code, stderr.split("\n").length, stderr.startsWith(message)], [2, 2, true], stderr);
    });

  test("every npm script has a run or a reason", () => {
    const { scripts }: { scripts: object } = JSON.parse(read("package.json"));
    const covered = [...Object.keys(otherScripts), "fuzz", "torture"];
    assert.deepEqual(Object.keys(scripts).toSorted(), covered.toSorted());
  });
});
