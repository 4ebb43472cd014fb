/**
 * One node of `bench/nodes.ts`: a process with a ledger on the shared PostgreSQL, or with only a
 * connection pool (the floor). Its clients take turns over the keys; each takes a hold, settles it
 * when it is on disk, and repeats. The process reports to its parent when it is ready. For each
 * number of seconds that it receives, it measures and returns the latencies of the pairs. 0 ends
 * it.
 */
import pg from "pg";
import { Ledger } from "../src/ledger/ledger.ts";
import { openPostgresStore } from "../src/store/postgres/store.ts";
import { accountId, nextAccount, plans } from "./ledger-file.ts";
import { holdAndSettle } from "./pair.ts";

export interface NodeTask {
  url: string;
  /**
   * `ledger`: Inkwell's ledger. `row update`: one statement that takes from a row, and one that
   * returns to it.
   */
  by: "ledger" | "row update";
  /** Clients of this node. */
  clients: number;
  /** Keys of all nodes, one account each. */
  keys: number;
}

type Pair = (account: number) => Promise<void>;

async function ledgerPairs({ url }: NodeTask): Promise<{ pair: Pair; close(): Promise<void> }> {
  const store = await openPostgresStore({ url, plans });
  const ledger = new Ledger(store);
  return {
    pair: (n) => holdAndSettle(ledger, n),
    async close() {
      await ledger.idle();
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

// Not counted: statements are prepared, connections are opened, and code is compiled. On two
// cores, three processes need seconds for that.
await callFor(3000);
process.on("message", async (seconds: number) => {
  if (seconds > 0) process.send?.(await callFor(seconds * 1000));
  else {
    await close();
    process.disconnect?.();
  }
});
process.send?.("ready");
