/**
 * The scenario tables (test/scenarios/README.md): all of them in memory, and some on SQLite and
 * PostgreSQL.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import type { Store } from "../../src/store/store.ts";
import { assertSound, backends, type Database } from "../fixtures/backends.ts";
import { memoryStore } from "../fixtures/memory-store.ts";
import { clockStage } from "../fixtures/scenario-clock.ts";
import { parseScenarios, type Scenario } from "../fixtures/scenario-file.ts";
import { needsClock, type PlayOptions, play, type Stage } from "../fixtures/scenario-player.ts";
import { some } from "../fixtures/thorough.ts";
import { day } from "../fixtures/times.ts";

const folder = new URL("../scenarios/", import.meta.url);
const tables = new Map<string, Scenario[]>();
for (const name of readdirSync(folder)) {
  if (name.endsWith(".txt"))
    tables.set(name, parseScenarios(name, readFileSync(new URL(name, folder), "utf8")));
}

/** Tests every file on its own. */
function testTables(
  stage: () => Stage | Promise<Stage>,
  pick: (all: Scenario[]) => Scenario[],
  options?: PlayOptions,
): void {
  for (const [name, all] of tables) {
    const scenarios = pick(all.filter((scenario) => !needsClock(scenario)));
    if (scenarios.length === 0) continue;
    test(`${name}, ${scenarios.length} scenarios`, async () => {
      const wrong: string[] = [];
      for (const scenario of scenarios) {
        try {
          wrong.push(...(await play(await stage(), scenario, options)));
        } catch (error) {
          wrong.push(`${scenario.place}: ${error instanceof Error ? error.stack : error}`);
        }
      }
      assertNone(wrong);
    });
  }
}

function assertNone(wrong: readonly string[]): void {
  assert.ok(wrong.length === 0, `facts that are not as stated:\n${wrong.join("\n")}`);
}

const all = (scenarios: Scenario[]) => scenarios;
/** Fewer of a file with nearly the same scenarios for many pairs of plans. */
const sampleOf = (every: number) => (scenarios: Scenario[]) =>
  some(scenarios, scenarios.length > 100 ? 3 * every : every);

function memoryStage(): Stage {
  let nowMs = 0;
  const store = memoryStore(new Map(), () => nowMs);
  return {
    store,
    clock: {
      set: (ms) => {
        nowMs = ms;
      },
    },
  };
}

for (const looksBetween of [false, true]) {
  describe(`scenarios in memory, ${looksBetween ? "with" : "without"} looks between the rows`, () => {
    const stage = memoryStage();
    testTables(() => stage, looksBetween ? sampleOf(6) : all, { looksBetween });
  });
}

for (const backend of backends) {
  describe(`scenarios on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store | null = null;
    before(() => {
      database = backend.create(new Map());
    });
    /** Each scenario begins at a time of its own after this one, and times do not go back. */
    async function stage(): Promise<Stage> {
      database.clock.set(Date.UTC(2000, 0));
      if (store !== null) {
        await store.close();
        await database.sql("update clock set elapsed_ms = 0, ledger_ms = 0");
      }
      store = await database.open();
      return { store, clock: database.clock };
    }
    after(async () => {
      await database.remove();
    });
    testTables(stage, sampleOf(backend.name === "SQLite" ? 6 : 12));

    test("the ledger of all scenarios is sound", async () => {
      await assertSound(database);
    });
  });
}

// Each has a file of its own, and threads that the next one uses again.
describe("scenarios with a wrong clock, on SQLite", { concurrency: 2 }, () => {
  for (const scenarios of tables.values()) {
    for (const scenario of scenarios.filter(needsClock)) {
      test(`${scenario.place}: ${scenario.title}`, async () => {
        await using stage = await clockStage((scenario.rows[0]?.atMs ?? 0) - day);
        assertNone(await play(stage, scenario));
        assert.deepEqual(stage.audit().broken, []);
      });
    }
  }
});
