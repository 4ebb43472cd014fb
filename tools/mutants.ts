/**
 * `npm run mutants -- [options]`: draws mutants of the ledger by seed, and runs each of them in
 * histories of clocks, in simulated worlds and in small worlds, until a check fails. All mutants
 * are drawn before the first one runs.
 */
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { smallWorlds as knownWorlds } from "../test/fixtures/small-worlds.ts";
import type { MutantRun, Report } from "../test/simulation/mutant-child.ts";
import { drawn, type Mutant, mutationPoints } from "../test/simulation/mutants.ts";
import { optionsOf, refuse, wholeNumber } from "./options.ts";

const usage = `Usage: npm run mutants -- [options]
  --seed N      draws the mutants (default 1)
  --mutants N   number of mutants (default 40)
  --worlds N    simulated worlds of each mutant, with the seeds 1, 2, 3 ... (default 20)
  --requests N  requests of each world (default 200)
  --hours N     simulated time of each world (default 2)
  --small NAMES small worlds that a survivor has to pass, with commas (default one; none: no world)
  --only N,M    runs only these of the drawn mutants
  --list        prints the mutants and runs none of them`;

const values = optionsOf(usage, {
  seed: { type: "string", default: "1" },
  mutants: { type: "string", default: "40" },
  worlds: { type: "string", default: "20" },
  requests: { type: "string", default: "200" },
  hours: { type: "string", default: "2" },
  small: { type: "string", default: "one" },
  only: { type: "string" },
  list: { type: "boolean", default: false },
});

/** A world that takes longer hangs: it takes some seconds. */
const worldMsMax = 120_000;
const child = fileURLToPath(new URL("../test/simulation/mutant-child.ts", import.meta.url));

function whole(name: "seed" | "mutants" | "worlds" | "requests" | "hours"): number {
  return wholeNumber(usage, name, values[name]);
}

const worlds = Array.from({ length: whole("worlds") }, (_, n) => ({
  seed: n + 1,
  requests: whole("requests"),
  hours: whole("hours"),
}));
const smallWorlds = values.small.split(",").filter((name) => name !== "none");
const unknown = smallWorlds.find((given) => !knownWorlds.some(({ name }) => name === given));
if (unknown !== undefined) refuse(usage, `There is no small world "${unknown}".`);
const only = values.only?.split(",").map((number) => wholeNumber(usage, "only", number));

interface Result {
  /** Null: it survived. */
  killedBy: string | null;
  text: string;
  digests: string[];
}

/** Runs a mutant in a process of its own, which is ended if it hangs. */
async function runAlone(run: MutantRun): Promise<Result> {
  const digests: string[] = [];
  let hang: NodeJS.Timeout | undefined;
  const runner = fork(child, { stdio: ["ignore", "ignore", "pipe", "ipc"] });
  try {
    return await new Promise((resolve) => {
      const end = (killedBy: string | null, text = "") => resolve({ killedBy, text, digests });
      let place = "the start";
      hang = setTimeout(() => end(`a hang after ${place}`), worldMsMax);
      let errors = "";
      runner.stderr?.on("data", (part) => {
        errors += part;
      });
      runner.on("message", (message: Report) => {
        hang?.refresh();
        if (message.kind === "end") end(null);
        else if (message.kind === "violation") end(message.name, message.text);
        else {
          place = message.name;
          if (message.digest !== null) digests.push(message.digest);
        }
      });
      runner.on("exit", () => end(`a crash after ${place}`, errors));
      runner.send(run);
    });
  } finally {
    clearTimeout(hang);
    await gone(runner);
  }
}

async function gone(runner: ChildProcess): Promise<void> {
  if (runner.exitCode !== null || runner.signalCode !== null) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  runner.once("exit", () => resolve());
  runner.kill("SIGKILL");
  await promise;
}

function short(text: string): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length > 90 ? `${line.slice(0, 87)}...` : line;
}

function described({ operator, line, code, edit }: Mutant): string {
  const change = `${short(edit.from)}  ->  ${short(edit.to)}`;
  // An operator alone says little.
  const place = edit.from.length < 20 ? `  in  ${short(code)}` : "";
  return `${edit.file}:${line}, ${operator}: ${change}${place}`;
}

function firstLine(text: string): string {
  return short(text.split("\n").find((line) => line.trim() !== "") ?? "");
}

const points = mutationPoints("src/ledger");
const mutants = drawn(points, { seed: whole("seed"), count: whole("mutants") });
const beyond = only?.find((number) => number > mutants.length);
if (beyond !== undefined) refuse(usage, `There are ${mutants.length} mutants, and no ${beyond}.`);
console.log(`${mutants.length} of ${points.length} places of src/ledger, drawn with seed ${values.seed}:`);
for (const [n, mutant] of mutants.entries()) console.log(`${n + 1}. ${described(mutant)}`);

async function runAll(): Promise<boolean> {
  const control = await runAlone({ edit: null, worlds, smallWorlds });
  if (control.killedBy !== null) {
    console.error(`Without a mutant ${control.killedBy} fails: ${control.text}`);
    return false;
  }
  let run = 0;
  const survivors: number[] = [];
  for (const [index, mutant] of mutants.entries()) {
    if (only !== undefined && !only.includes(index + 1)) continue;
    const beganMs = performance.now();
    const { killedBy, text, digests } = await runAlone({ edit: mutant.edit, worlds, smallWorlds });
    const seconds = ((performance.now() - beganMs) / 1000).toFixed(1);
    run += 1;
    if (killedBy === null) survivors.push(index + 1);
    const traces = digests.filter((digest, n) => digest !== control.digests[n]).length;
    const end =
      killedBy === null ? `SURVIVED, other traces: ${traces} of ${digests.length}` : `killed by ${killedBy}`;
    console.log(`\n${index + 1}. ${described(mutant)}\n   ${end}, ${seconds} s ${firstLine(text)}`);
  }
  console.log(
    `\n${run - survivors.length} of ${run} mutants were killed. Survivors: ${survivors.join(", ")}`,
  );
  return true;
}

if (!values.list) process.exitCode = (await runAll()) ? 0 : 1;
