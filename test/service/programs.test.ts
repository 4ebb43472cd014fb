/**
 * The programs for people who work on Inkwell: each bench, the fuzzer, the torture tests and the
 * screenshots run for a moment, and show what their documentation promises. A new bench or npm
 * script needs a run here, or a reason.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { describe, test } from "node:test";
import { bundlesVariable } from "../fixtures/bundles.ts";
import { noChromium } from "../fixtures/chromium.ts";
import { noPostgres } from "../fixtures/postgres.ts";
import { miniature, newFolder } from "../fixtures/program.ts";

const root = path.join(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(path.join(root, file), "utf8");

interface Ran {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Runs a program of the checkout. */
async function run(...args: string[]): Promise<Ran> {
  const { NODE_TEST_CONTEXT: _, [bundlesVariable]: bundles, ...own } = process.env;
  const env = { ...own, ...(bundles === undefined ? {} : { NODE_OPTIONS: `--require="${bundles}"` }) };
  return await new Promise((resolve) => {
    const child = execFile(process.execPath, args, { cwd: root, env }, (_error, stdout, stderr) =>
      resolve({ code: child.exitCode, stdout, stderr }),
    );
  });
}

async function shown(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await run(...args);
  assert.equal(code, 0, `${stdout}\n${stderr}`);
  return stdout;
}

interface Bench {
  args: string[];
  /** What the output has: the ratio to the floor, or figures if there is no floor. */
  shows: RegExp;
  skip?: string | null;
}

/** A cell of a table with a number. */
const figure = "│ '-?[\\d.]+[^│]*' +│";
const model = ["--model", miniature];
const moment = ["--seconds", "0.05", "--rounds", "1"];

const benches: Record<string, Bench> = {
  blocking: {
    args: ["--seconds", "0.1", "--only", "20 x 4 MB of blanks"],
    shows: new RegExp(`p99 / idle .*'idle' .*'20 x 4 MB of blanks' .*${figure}`, "s"),
  },
  console: {
    args: ["--pages", "1", "--seconds", "0.1"],
    shows: new RegExp(`added by pages .*'one account' .*${figure}`, "s"),
    skip: process.platform === "linux" ? null : "it reads times from /proc",
  },
  engine: {
    args: [...model, "--threads", "1", "--concurrent", "1", "--tokens", "4", "--rounds", "1"],
    shows: new RegExp(`ratio to bare loop .*${figure}`, "s"),
  },
  fairness: {
    args: [...model, "--accounts", "1", "--warm", "0.3", ...moment],
    shows: new RegExp(`of the target .* ratio .*${figure}`, "s"),
  },
  gateway: {
    args: ["--clients", "1", "--warm", "0.05", ...moment],
    shows: new RegExp(`Inkwell / this .*'whole' .*'bare Fastify' .*'streamed' .*${figure}`, "s"),
  },
  "gateway --upstream": {
    args: ["--clients", "1", "--warm", "0.05", "--only", "short", "--stream", "false", ...moment],
    shows: new RegExp(`of floor .*'Inkwell, SQLite' .*'Inkwell, PostgreSQL' .*${figure}`, "s"),
    skip: noPostgres,
  },
  isolation: {
    args: ["--seconds", "0.1", "--receipts", "1000", "--holds", "100", "--imported", "150"],
    shows: new RegExp(
      `p50 ratio .*'beside a locked row' .*${figure}.*holds.*${figure}.*'beside the import' .*${figure}`,
      "s",
    ),
    skip: noPostgres,
  },
  ledger: {
    args: ["--callers", "1", "--accounts", "1", "--rows", "0", ...moment],
    shows: new RegExp(` ratio .*${figure}`, "s"),
  },
  metering: {
    args: ["--clients", "1", "--tokens", "8", ...moment],
    shows: new RegExp(`of floor .* ledger µs/token .*${figure}`, "s"),
  },
  nodes: {
    args: ["--nodes", "1", "--keys", "1", "--clients", "1", ...moment],
    shows: new RegExp(` ratio .*${figure}`, "s"),
    skip: noPostgres,
  },
  steady: {
    args: ["--accounts", "1", "--clients", "1", "--seconds", "0.2", "--step", "0.1"],
    shows: /row update.* ledger.* the last to the best: \d/s,
    skip: noPostgres,
  },
  portal: {
    args: ["--charges", "2000", "--days", "3", "--rounds", "1"],
    shows: new RegExp(`median ms .*'GET /api/requests\\?limit=50' .*${figure}`, "s"),
  },
  preparation: {
    args: [...model, "--connections", "1", "--seconds", "0.1", "--rounds", "1"],
    shows: new RegExp(`beside the flood tok/s .* ratio .*${figure}`, "s"),
  },
  refusals: {
    args: ["--seconds", "0.1", "--connections", "1"],
    shows: new RegExp(`p50 / alone .*during the attack .*${figure}`, "s"),
  },
  stops: {
    args: ["--characters", "2000"],
    shows: new RegExp(`of short sequences .* 1000000 .*${figure}`, "s"),
  },
  storage: {
    args: ["--requests", "50", "--accounts", "5", "--callers", "4"],
    shows: new RegExp(`SQLite .*PostgreSQL .*${figure}`, "s"),
    skip: noPostgres,
  },
  streams: {
    args: ["--streams", "5", "--tokens", "3", "--every", "5"],
    shows: new RegExp(`slowest / median .*${figure}`, "s"),
  },
  sums: {
    args: ["--charges", "2000", "--accounts", "10", "--days", "3", "--seconds", "0.1"],
    shows: /beside the first summing: .*all days, by day: .*\n {2}[\d.]+ of the scan/s,
  },
};

/** npm scripts that are not run here, each with its test or a reason. */
const otherScripts: Record<string, string> = {
  start: "test/service/documented-commands.test.ts",
  inkwell: "test/service/documented-commands.test.ts",
  build: "test/service/package.test.ts",
  prepack: "test/service/package.test.ts",
  sbom: "test/service/package.test.ts",
  openapi: "test/http/api-documents.test.ts",
  "time-line": "test/tidy.test.ts",
  check: "a part of npm test",
  test: "this run",
  gpu: "downloads 540 MB",
};

describe("programs of the checkout", { concurrency: 2 }, () => {
  const folder = newFolder();

  for (const [store, skip] of [
    ["SQLite", null],
    ["PostgreSQL", noPostgres],
  ] as const) {
    test(`npm run torture -- --kill, on ${store}`, { skip: skip ?? false }, async () => {
      const args = ["--kill", "--store", store, "--cycles", "1", "--up", "1000"];
      const text = await shown("tools/torture.ts", ...args);
      assert.match(text, /^kill 1: \d+ requests so far, \d+ holds open, the ledger is sound$/m);
      assert.match(text, /^2 payments, each counted once\./m);
    });
  }

  test("npm run torture", async () => {
    const text = await shown("tools/torture.ts", "--store", "sqlite", "--ops", "500", "--seed", "1");
    assert.match(
      text,
      /^[\d,]+ operations in [\d,]+ commits, .* no difference and nothing for the audit\.$/m,
    );
  });

  test("npm run simulate", async () => {
    const size = ["--worlds", "1", "--requests", "20", "--hours", "1"];
    const text = await shown("tools/simulate.ts", "--seed", "1", ...size);
    assert.match(text, /^seed 1: \d+ events, \d+ commits, trace [0-9a-f]{16}, /m);
    assert.match(text, /^1 worlds without a violation in /m);
  });

  test("npm run mutants", async () => {
    const size = ["--worlds", "1", "--requests", "20", "--hours", "1", "--small", "none"];
    const text = await shown("tools/mutants.ts", "--seed", "1", "--mutants", "1", ...size);
    assert.match(text, /^1 of \d+ places of src\/ledger, drawn with seed 1:\n1\. src\/ledger\/\S+:\d+, /m);
    assert.match(text, /^[01] of 1 mutants were killed\./m);
  });

  // test/unit/exhaust.test.ts searches a world.
  test("npm run exhaust names its worlds", async () => {
    assert.match(await shown("tools/exhaust.ts", "--help"), /^Usage: npm run exhaust \[-- WORLD/m);
    const { code, stderr } = await run("tools/exhaust.ts", "nowhere");
    assert.notEqual(code, 0);
    assert.match(stderr, /nowhere/);
  });

  test("npm run look", { skip: noChromium ?? false }, async () => {
    await using scratch = await folder;
    const text = await shown("tools/take-screenshots.ts", "account-new", scratch.path);
    assert.match(text, /^Screenshots of 1 pages are in /m);
    const expected = [1280, 1920, 360, 768].flatMap((width) =>
      ["dark", "light"].map((theme) => `account-new-${width}-${theme}.png`),
    );
    assert.deepEqual(readdirSync(scratch.path).toSorted(), expected);
  });

  test("npm run fuzz", async () => {
    const text = await shown("tools/fuzz.ts", "archive", "--minutes", "0.01", "--seed", "1");
    assert.match(text, /^archive: \d+ inputs, \d+ outcomes, 0 findings \(seed 1\)$/m);
  });

  for (const [name, { args, shows, skip }] of Object.entries(benches)) {
    test(`npm run bench -- ${name}`, { skip: skip ?? false }, async () => {
      assert.match(await shown("bench/run.ts", ...name.split(" "), ...args), shows);
    });
  }

  test("every bench is documented and has a run", async () => {
    const { code, stderr } = await run("bench/run.ts", "none");
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

  test("every npm script has a run or a reason", () => {
    const { scripts }: { scripts: object } = JSON.parse(read("package.json"));
    const run = ["bench", "exhaust", "fuzz", "look", "mutants", "simulate", "torture"];
    const covered = [...Object.keys(otherScripts), ...run];
    assert.deepEqual(Object.keys(scripts).toSorted(), covered.toSorted());
  });
});
