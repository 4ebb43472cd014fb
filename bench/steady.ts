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
import pg from "pg";
import { start } from "../test/fixtures/postgres.ts";
import type { NodeTask } from "./node-process.ts";
import { measure, prepare, startNodes } from "./nodes.ts";
import { numbersOf, optionsOf } from "./options.ts";
import { parentOf, processorMs } from "./processes.ts";

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

export async function versionOf(url: string): Promise<{ version: string; postmaster: number }> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query(
    "select current_setting('server_version') as v, pg_backend_pid() as pid",
  );
  const postmaster = parentOf(Number(rows[0].pid));
  await client.end();
  return { version: String(rows[0].v), postmaster };
}
