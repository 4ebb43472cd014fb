/**
 * `npm run simulate -- [options]`: runs simulated worlds, each with processes of the service, a
 * database, model servers, clients and operators, and checks everything that happens.
 */
import { messageOf } from "../src/errors.ts";
import { defects, simulationOf } from "../test/simulation/defects.ts";
import { bundleProgram } from "../test/simulation/process.ts";
import { type SimulationResult, simulate } from "../test/simulation/world.ts";
import { optionsOf, wholeNumber } from "./options.ts";

const usage = `Usage: npm run simulate -- [options]
  --seed N      the first seed (default: another one each time)
  --worlds N    number of worlds, with one seed after the other (default 20)
  --requests N  requests of each world (default 200)
  --hours N     simulated time of each world (default 2)
  --defects     puts old defects back, one at a time, and reports which seed finds each`;

const values = optionsOf(usage, {
  seed: { type: "string", default: String(Date.now() & 0x3fff_ffff) },
  worlds: { type: "string", default: "20" },
  requests: { type: "string", default: "200" },
  hours: { type: "string", default: "2" },
  defects: { type: "boolean", default: false },
});

function whole(name: "seed" | "worlds" | "requests" | "hours"): number {
  return wholeNumber(usage, name, values[name]);
}

const first = whole("seed");
const seeds = Array.from({ length: whole("worlds") }, (_, n) => first + n);
const size = { requests: whole("requests"), hours: whole("hours") };

function secondsSince(beganMs: number): string {
  return `${((performance.now() - beganMs) / 1000).toFixed(1)} s`;
}

async function runWorlds(): Promise<void> {
  const program = await bundleProgram();
  const beganMs = performance.now();
  const outcomes = new Map<string, number>();
  for (const seed of seeds) {
    const worldMs = performance.now();
    const result: SimulationResult = await simulate(program, { seed, ...size });
    for (const [name, count] of result.outcomes) outcomes.set(name, (outcomes.get(name) ?? 0) + count);
    const { events, commits, digest } = result;
    console.log(
      `seed ${seed}: ${events} events, ${commits} commits, trace ${digest}, ${secondsSince(worldMs)}`,
    );
  }
  console.log(`\n${seeds.length} worlds without a violation in ${secondsSince(beganMs)}. What happened:`);
  for (const [name, count] of [...outcomes].sort()) console.log(`  ${count} ${name}`);
}

/** Exits with 1 if a defect is not found. */
async function findDefects(): Promise<void> {
  let missed = 0;
  for (const { name, edit } of defects) {
    await using run = await simulationOf([edit]);
    const beganMs = performance.now();
    const found = await seedThatFails(run);
    if (found === null) missed += 1;
    console.log(`${found === null ? "NOT FOUND" : `seed ${found}`}, ${secondsSince(beganMs)}: ${name}`);
  }
  process.exitCode = missed === 0 ? 0 : 1;
}

async function seedThatFails(run: Awaited<ReturnType<typeof simulationOf>>): Promise<number | null> {
  for (const seed of seeds) {
    try {
      await run({ seed, ...size });
    } catch {
      return seed;
    }
  }
  return null;
}

try {
  await (values.defects ? findDefects() : runWorlds());
} catch (error) {
  console.error(messageOf(error));
  process.exitCode = 1;
}
// Timers of Node's HTTP servers would keep the process alive.
process.exit();
