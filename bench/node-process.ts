/**
 * One node of `bench/nodes.ts`: a process with a ledger on the shared PostgreSQL, or with nothing but a pool of
 * connections (the floor). Its clients take turns over the keys; each takes a hold and, when that is on disk, settles
 * it, then again. Tells its parent when it is ready; then, for each number of seconds that it is told, the latencies of
 * the pairs in that time. At 0 it ends.
 */
import pg from "pg";
import { Ledger } from "../src/ledger/ledger.ts";
import { commitQueues, openPostgresStore } from "../src/store/postgres/store.ts";
import { accountId, nextAccount, plans } from "./ledger-file.ts";
import { holdAndSettle } from "./pair.ts";

export interface NodeTask {
  url: string;
  /** `ledger`: Inkwell's; `row update`: one statement that takes from a row, and one that gives back. */
  by: "ledger" | "row update";
  /** Of this node. */
  clients: number;
  /** Of all nodes: an account each. */
  keys: number;
}

type Pair = (account: number) => Promise<void>;

async function ledgerPairs({ url }: NodeTask): Promise<{ pair: Pair; close(): Promise<void> }> {
  const store = await openPostgresStore({ url, plans });
  const ledger = new Ledger(store, { commitQueues: commitQueues });
  return {
    pair: (n) => holdAndSettle(ledger, n),
    async close() {
      await ledger.settled();
      await store.close();
    },
  };
}

async function rowUpdates({ url, clients }: NodeTask): Promise<{ pair: Pair; close(): Promise<void> }> {
  const pool = new pg.Pool({ connectionString: url, max: Math.min(clients, 30) });
  const take = async (n: number, credits: number) => {
    const text = "update floor_balance set credits = credits - $2 where id = $1 and credits >= $2";
    const { rowCount } = await pool.query({ name: "take", text, values: [accountId(n), credits] });
    if (rowCount !== 1) throw new Error("a balance of the floor has run out");
  };
  return {
    async pair(n) {
      await take(n, 100);
      await take(n, -89);
    },
    close: () => pool.end(),
  };
}

const [argument = ""] = process.argv.slice(2);
const task: NodeTask = JSON.parse(argument);
const { pair, close } = await (task.by === "ledger" ? ledgerPairs(task) : rowUpdates(task));

async function callFor(ms: number): Promise<number[]> {
  const latenciesMs: number[] = [];
  const untilMs = performance.now() + ms;
  let turn = Math.floor(Math.random() * task.keys);
  const client = async () => {
    for (let beganMs = performance.now(); beganMs < untilMs; ) {
      await pair(nextAccount(turn++, task.keys));
      const endedMs = performance.now();
      latenciesMs.push(endedMs - beganMs);
      beganMs = endedMs;
    }
  };
  await Promise.all(Array.from({ length: task.clients }, client));
  return latenciesMs;
}

// Uncounted, so that code is compiled, statements are prepared and connections open.
await callFor(500);
process.on("message", async (seconds: number) => {
  if (seconds > 0) process.send?.(await callFor(seconds * 1000));
  else {
    await close();
    process.disconnect();
  }
});
process.send?.("ready");
