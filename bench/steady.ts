/**
 * Whether PostgreSQL stays as fast as it begins: holds and settlements on a fresh database for a
 * minute, by one process, on one account and on many. Ended holds, replaced rows and growing
 * tables must not slow down what comes later.
 *
 * The floor, on the same server before, is a statement that takes from a row and one that returns
 * to it (nodes.ts). Processor time is that of all processes of the server, for each pair, on Linux
 * and on the same machine only.
 *
 *   npm run bench -- steady [--accounts 1,1000] [--clients 32] [--seconds 60] [--step 5]
 *
 * `--database postgres://...` uses your empty database, for one number of accounts. Otherwise the
 * bench starts a server on this machine, with fsync.
 */
import { readdirSync, readFileSync } from "node:fs";
import pg from "pg";
import { start } from "../test/fixtures/postgres.ts";
import type { NodeTask } from "./node-process.ts";
import { measure, prepare, startNodes } from "./nodes.ts";
import { numbersOf, optionsOf } from "./options.ts";

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    database: undefined,
    accounts: "1,1000",
    clients: "32",
    seconds: "60",
    step: "5",
  });
  const stepSeconds = Number(values.step);
  const steps = Math.round(Number(values.seconds) / stepSeconds);
  const server = values.database === undefined ? await start({ durable: true }) : null;
  for (const keys of numbersOf(values.accounts)) {
    const url = server?.url(await server.create()) ?? values.database ?? "";
    await prepare(url, keys);
    for (const by of ["row update", "ledger"] as const) {
      const task: NodeTask = { url, by, clients: Number(values.clients), keys };
      await report(task, { steps, stepSeconds });
    }
  }
}

async function report(
  task: NodeTask,
  { steps, stepSeconds }: { steps: number; stepSeconds: number },
): Promise<void> {
  await using nodes = await startNodes(task, 1);
  const server = await versionOf(task.url);
  const rates: number[] = [];
  const times: number[] = [];
  for (let step = 0; step < steps; step += 1) {
    const before = processorMs(server.postmaster);
    const { pairsPerSecond } = await measure(nodes.children, stepSeconds);
    rates.push(pairsPerSecond);
    times.push((processorMs(server.postmaster) - before) / (pairsPerSecond * stepSeconds));
  }
  const last = rates.at(-1) ?? Number.NaN;
  console.log(`PostgreSQL ${server.version}, ${task.keys} accounts, ${task.clients} clients, ${task.by}`);
  console.log(`  pairs/s by ${stepSeconds} s: ${rates.map((rate) => rate.toFixed(0)).join(" ")}`);
  console.log(`  the last to the best: ${(last / Math.max(...rates)).toFixed(2)}`);
  console.log(`  processor ms of the database for each pair: ${times.map((ms) => ms.toFixed(2)).join(" ")}`);
}

async function versionOf(url: string): Promise<{ version: string; postmaster: number }> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(
    "select current_setting('server_version') as v, pg_backend_pid() as pid",
  );
  const postmaster = parentOf(Number(rows[0].pid));
  await client.end();
  return { version: String(rows[0].v), postmaster };
}

/** The fields of /proc/PID/stat after the name: state, parent and so on. Empty if it has ended. */
function statOf(pid: number): string[] {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    return text.slice(text.lastIndexOf(")") + 2).split(" ");
  } catch {
    return [];
  }
}

function parentOf(pid: number): number {
  return Number(statOf(pid)[1] ?? Number.NaN);
}

/**
 * Returns the processor time of the server and its processes, also of those that have ended. Clock
 * ticks have 10 ms. NaN if the server is on another machine.
 */
function processorMs(postmaster: number): number {
  if (Number.isNaN(postmaster)) return Number.NaN;
  const own = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => statOf(Number(name)))
    .filter(([, parent]) => Number(parent) === postmaster);
  const ticks = own.reduce((sum, stat) => sum + Number(stat[11]) + Number(stat[12]), 0);
  const ended = statOf(postmaster);
  return 10 * (ticks + Number(ended[13]) + Number(ended[14]));
}
