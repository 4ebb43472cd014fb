/**
 * One node of `bench/nodes.ts`: a process with a ledger on the shared PostgreSQL, or with nothing but a pool of
 * connections (the floor). Its clients take turns over the keys; each takes a hold and, when that is on disk, settles
 * it, then again. Tells its parent when it is ready, begins when it is told to, and tells the latencies of the pairs.
 */
import pg from "pg";
import { Ledger } from "../src/credits/ledger.ts";
import { newRequestId } from "../src/server/request-id.ts";
import { openPostgresStore } from "../src/store/postgres.ts";
import { accountId, keyId, nextAccount, plans, price, used } from "./ledger-file.ts";

export interface NodeTask {
  url: string;
  /** `ledger`: Inkwell's; `row update`: one statement that takes from a row, and one that gives back. */
  by: "ledger" | "row update";
  /** Of this node. */
  clients: number;
  /** Of all nodes: an account each. */
  keys: number;
  seconds: number;
}

type Pair = (account: number) => Promise<void>;

async function ledgerPairs({ url }: NodeTask): Promise<{ pair: Pair; close(): Promise<void> }> {
  const store = await openPostgresStore({ url, plans });
  const ledger = new Ledger(store);
  return {
    async pair(n) {
      const account = accountId(n);
      const hold = newRequestId();
      const min = used.promptTokens + 1;
      const want = used.promptTokens + used.completionTokens;
      const held = await ledger.apply({
        kind: "hold",
        account,
        hold,
        key: keyId(n),
        model: "bench",
        price,
        promptTokens: used.promptTokens,
        min,
        want,
        ttlMs: 30_000,
      });
      if (held.kind !== "held") throw new Error(`a hold was answered with ${JSON.stringify(held)}`);
      const settled = await ledger.apply({
        kind: "settle",
        account,
        hold,
        used,
        ending: "stop",
        estimated: false,
      });
      if (settled.kind !== "settled") throw new Error(`a settlement was answered with ${settled.kind}`);
    },
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
process.once("message", async () => {
  const latenciesMs = await callFor(task.seconds * 1000);
  process.send?.(latenciesMs);
  await close();
  process.disconnect();
});
process.send?.("ready");
