/**
 * `npm run simulate -- [options]`: runs simulated worlds, each with processes of the service, a
 * database, model servers, clients and operators, and checks everything that happens.
 */
import { messageOf } from "../src/errors.ts";
import { defects, simulationOf } from "../test/simulation/defects.ts";
import { bundleProgram } from "../test/simulation/process.ts";
import { simulate, type Trouble, troubles, type WorldOptions } from "../test/simulation/world.ts";
import { optionsOf, refuse, wholeNumber } from "./options.ts";

const usage = `Usage: npm run simulate -- [options]
  --seed N      the first seed (default: another one each time)
  --worlds N    number of worlds, with one seed after the other (default 20)
  --requests N  requests of each world (default 200)
  --hours N     simulated time of each world (default 2)
  --without A,B what the worlds do not have: ${troubles.join(", ")}
  --defects     puts old defects back, one at a time, and reports which seed finds each`;

const values = optionsOf(usage, {
  seed: { type: "string", default: String(Date.now() & 0x3fff_ffff) },
  worlds: { type: "string", default: "20" },
  requests: { type: "string", default: "200" },
  hours: { type: "string", default: "2" },
  without: { type: "string", default: "" },
  defects: { type: "boolean", default: false },
});

function whole(name: "seed" | "worlds" | "requests" | "hours"): number {
  return wholeNumber(usage, name, values[name]);
}

const first = whole("seed");
const seeds = Array.from({ length: whole("worlds") }, (_, n) => first + n);
const without = values.without
  .split(",")
  .filter((name) => name !== "")
  .map(troubleOf);
const size = { requests: whole("requests"), hours: whole("hours"), without };

function troubleOf(name: string): Trouble {
  return (
    troubles.find((trouble) => trouble === name) ??
    refuse(usage, `--without has some of ${troubles.join(", ")}, not ${name}`)
  );
}

function secondsSince(beganMs: number): string {
  return `${((performance.now() - beganMs) / 1000).toFixed(1)} s`;
}

/** The first line, without seed and time, and with equal names. */
function violationOf(error: unknown): string {
  const [line = ""] = messageOf(error).split("\n");
  return line.replace(/^.*?Z: /, "").replaceAll(/\b[\w-]*\d[\w-]*/g, "N");
}

/** Looks for a smaller world with the same violation: less trouble, fewer requests. */
async function shrunk(program: string, options: WorldOptions, error: unknown): Promise<WorldOptions> {
  const wanted = violationOf(error);
  const fails = async (smaller: WorldOptions) =>
    await simulate(program, smaller).then(
      () => false,
      (found: unknown) => violationOf(found) === wanted,
    );
  let smallest = options;
  for (const trouble of troubles) {
    const smaller = { ...smallest, without: [...(smallest.without ?? []), trouble] };
    if (await fails(smaller)) smallest = smaller;
  }
  for (const share of [0.1, 0.2, 0.4, 0.7]) {
    const smaller = { ...smallest, requests: Math.ceil(options.requests * share) };
    if (await fails(smaller)) return smaller;
  }
  return smallest;
}

function commandOf({ seed, requests, hours, without = [] }: WorldOptions): string {
  const less = without.length === 0 ? "" : ` --without ${without.join()}`;
  return `npm run simulate -- --worlds 1 --seed ${seed} --requests ${requests} --hours ${hours}${less}`;
}

async function runWorlds(): Promise<void> {
  const program = await bundleProgram();
  const beganMs = performance.now();
  const outcomes = new Map<string, number>();
  for (const seed of seeds) {
    const worldMs = performance.now();
    const options = { seed, ...size };
    const result = await simulate(program, options).catch(async (error: unknown) => {
      console.error(messageOf(error));
      console.error(`\nThe same violation with less:\n  ${commandOf(await shrunk(program, options, error))}`);
      return null;
    });
    if (result === null) {
      process.exitCode = 1;
      return;
    }
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
