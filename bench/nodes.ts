/**
 * Time that the ledger adds to a request if several nodes share one PostgreSQL. A request is a
 * hold and a settlement, each on disk before it is acknowledged. They come from 1, 2 and 3
 * processes, on one busy key and on many.
 *
 * The floor, in turns in the same run, is the minimum of consistent accounting: a statement that
 * takes from a row and a statement that returns to it, on a connection pool. It has no journal,
 * receipts, limits or protection from lost acknowledgements.
 *
 *   npm run bench -- nodes [--nodes 1,2,3] [--keys 1,1000] [--clients 20,50] [--seconds 1] \
 *     [--rounds 3]
 *
 * `--database postgres://...` uses your empty database. Otherwise the bench starts a server on
 * this machine, with fsync.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import pg from "pg";
import { Ledger } from "../src/ledger/ledger.ts";
import { openPostgresStore } from "../src/store/postgres/store.ts";
import { start } from "../test/fixtures/postgres.ts";
import { plans } from "./ledger-file.ts";
import type { NodeTask } from "./node-process.ts";
import { numbersOf, optionsOf } from "./options.ts";
import { openAccount } from "./pair.ts";
import { medianOf } from "./servers.ts";

interface Measured {
  pairsPerSecond: number;
  p50Ms: number;
  p99Ms: number;
}

export async function run(args: readonly string[]): Promise<void> {
  const values = optionsOf(args, {
    database: undefined,
    nodes: "1,2,3",
    keys: "1,1000",
    clients: "20,50",
    seconds: "1",
    rounds: "3",
  });
  const seconds = Number(values.seconds);
  const url = values.database ?? (await ownDatabase());
  await prepare(url, Math.max(...numbersOf(values.keys)));
  const table: Record<string, string>[] = [];
  for (const keys of numbersOf(values.keys)) {
    for (const clients of numbersOf(values.clients)) {
      for (const nodes of numbersOf(values.nodes)) {
        const measured: Record<NodeTask["by"], Measured[]> = { ledger: [], "row update": [] };
        await using ledger = await startNodes({ url, by: "ledger", clients, keys }, nodes);
        await using floor = await startNodes({ url, by: "row update", clients, keys }, nodes);
        for (let round = 0; round < Number(values.rounds); round += 1) {
          measured.ledger.push(await measure(ledger.children, seconds));
          measured["row update"].push(await measure(floor.children, seconds));
        }
        table.push(lineOf({ keys, clients, nodes }, measured));
      }
    }
  }
  console.log(`Hold and settlement on PostgreSQL, median of ${values.rounds} rounds of ${seconds} s`);
  console.table(table);
}

async function ownDatabase(): Promise<string> {
  const server = await start({ durable: true });
  return server.url(await server.create());
}

export async function prepare(url: string, keys: number): Promise<void> {
  const store = await openPostgresStore({ url, plans });
  const ledger = new Ledger(store);
  await Promise.all(Array.from({ length: keys }, (_, n) => openAccount(store, ledger, n)));
  await store.close();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query("create table floor_balance (id text primary key, credits bigint not null)");
  await client.query("insert into floor_balance select id, 9000000000000 from inkwell.account");
  await client.end();
}

interface Nodes extends AsyncDisposable {
  children: readonly ChildProcess[];
}

/** `clients` is the total over all nodes. */
export async function startNodes(task: NodeTask, nodes: number): Promise<Nodes> {
  const children = Array.from({ length: nodes }, (_, node) => {
    const clients = Math.floor((task.clients + node) / nodes);
    const file = join(import.meta.dirname, "node-process.ts");
    return spawn(process.execPath, [file, JSON.stringify({ ...task, clients })], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
  });
  const stop = async () => {
    const ended = children.map((child) => child.exitCode ?? once(child, "exit"));
    for (const child of children) if (child.connected) child.send(0);
    await Promise.all(ended);
  };
  await Promise.all(children.map(answerOf));
  return { children, [Symbol.asyncDispose]: stop };
}

export async function measure(children: readonly ChildProcess[], seconds: number): Promise<Measured> {
  const all = Promise.all(children.map(answerOf));
  for (const child of children) child.send(seconds);
  const latenciesMs = (await all).flat().sort((a, b) => a - b);
  const at = (share: number) => latenciesMs[Math.floor(latenciesMs.length * share)] ?? Number.NaN;
  return { pairsPerSecond: latenciesMs.length / seconds, p50Ms: at(0.5), p99Ms: at(0.99) };
}

async function answerOf(child: ChildProcess): Promise<number[]> {
  const listening = new AbortController();
  const { signal } = listening;
  const ended = once(child, "exit", { signal }).then(() => {
    throw new Error("a node has ended; what it said is above");
  });
  try {
    const [answer]: number[][] = await Promise.race([once(child, "message", { signal }), ended]);
    return answer ?? [];
  } finally {
    listening.abort();
  }
}

function lineOf(
  setting: { keys: number; clients: number; nodes: number },
  { ledger, "row update": floor }: Record<NodeTask["by"], Measured[]>,
): Record<string, string> {
  const median = (of: keyof Measured, from: readonly Measured[]) => medianOf(from.map((each) => each[of]));
  const rates = ledger.map(({ pairsPerSecond }) => pairsPerSecond);
  const spread = (Math.max(...rates) - Math.min(...rates)) / median("pairsPerSecond", ledger);
  return {
    keys: `${setting.keys}`,
    clients: `${setting.clients}`,
    nodes: `${setting.nodes}`,
    "pairs/s": median("pairsPerSecond", ledger).toFixed(0),
    "floor pairs/s": median("pairsPerSecond", floor).toFixed(0),
    ratio: (median("pairsPerSecond", ledger) / median("pairsPerSecond", floor)).toFixed(2),
    "p50 ms": median("p50Ms", ledger).toFixed(1),
    "floor p50": median("p50Ms", floor).toFixed(1),
    "p99 ms": median("p99Ms", ledger).toFixed(1),
    "floor p99": median("p99Ms", floor).toFixed(1),
    spread: `${(spread * 100).toFixed(0)} %`,
  };
}
