/**
 * Many people behind the key of one front end, on one node over SQLite or two nodes over
 * PostgreSQL, which are killed (`kill -9`) again and again. At the end:
 *
 * - each charge is on the account of the person who sent its request, and names the key;
 * - the cap of the key has counted exactly what all people paid, and no more than it allows;
 * - the ledger is sound, and no hold is left.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { answerLoad } from "../test/fixtures/load-upstream.ts";
import {
  type Folder,
  freePort,
  newFolder,
  type Program,
  quickEntry,
  startProgram,
} from "../test/fixtures/program.ts";
import { randomFrom } from "../test/fixtures/random.ts";
import { until } from "../test/fixtures/until.ts";
import { startUpstream } from "../test/fixtures/upstream.ts";
import { ledgers } from "./torture-ledger.ts";

const token = "the-token-of-all-nodes-0123456789";
const header = "x-openwebui-user-id";
const clients = 24;
const upMsMin = 1000;
const upMsMax = 8000;
/** An answer has 12 tokens of a credit each. The prompt costs nothing. */
const answerCredits = 12;

interface FrontEndOptions {
  store: string;
  seed: number;
  people: number;
  requests: number;
}

interface Node {
  folder: Folder;
  env: Record<string, string>;
  program: Program;
  url: string;
  operatorUrl: string;
}

export async function tortureFrontEnd({ store, seed, people, requests }: FrontEndOptions): Promise<void> {
  console.log(`${store}: ${requests} requests of ${people} people behind one front end, seed ${seed}`);
  const startedMs = performance.now();
  const random = randomFrom(seed);
  await using upstream = await startUpstream(answerLoad);
  await using ledgerFolder = await newFolder();
  const open = ledgers[store];
  assert.ok(open !== undefined);
  const ledger = await open(ledgerFolder.path);
  const capCredits = Math.floor(requests * 0.9) * answerCredits;
  const start = async (known: Omit<Node, "program" | "url" | "operatorUrl">): Promise<Node> => {
    const program = startProgram(known.folder.path, { entry: quickEntry, env: known.env });
    return { ...known, program, ...(await program.up()) };
  };
  const nodes: Node[] = [];
  for (let n = 0; n < (store === "SQLite" ? 1 : 2); n += 1) {
    const folder = n === 0 ? ledgerFolder : await newFolder();
    writeFileSync(path.join(folder.path, "inkwell.yaml"), configuration(upstream.url));
    const port = { INKWELL_PORT: String(await freePort()), INKWELL_OPERATOR_TOKEN: token };
    nodes.push(await start({ folder, env: { ...ledger.env, ...port } }));
  }
  const key = await makeKey(nodes[0]?.operatorUrl ?? "", capCredits);

  /** By request: the person who sent it. */
  const sentBy = new Map<string, string>();
  const codes = new Map<string, number>();
  let sent = 0;
  let answered = 0;
  let kills = 0;
  const send = async (): Promise<void> => {
    const person = `person-${sent < people ? sent : Math.floor(random() * people)}`;
    const url = nodes[Math.floor(random() * nodes.length)]?.url ?? "";
    sent += 1;
    const code = await chat(url, key, person, sentBy);
    codes.set(code, (codes.get(code) ?? 0) + 1);
    if (code === "broken") await sleep(100);
    else answered += 1;
  };
  const work = Promise.all(
    Array.from({ length: clients }, async () => {
      while (answered < requests) await send();
    }),
  );
  let isOver = false;
  const killing = async (): Promise<void> => {
    while (!isOver) {
      await Promise.race([work, sleep(upMsMin + random() * (upMsMax - upMsMin))]);
      if (isOver) return;
      const n = Math.floor(random() * nodes.length);
      const node = nodes[n];
      if (node === undefined) return;
      node.program.process.kill("SIGKILL");
      await node.program.ended;
      kills += 1;
      nodes[n] = await start(node);
      process.stderr.write(`\r${answered} answers, ${kills} kills`);
    }
  };
  const killer = killing();
  await work;
  isOver = true;
  await killer;
  await until("every hold has ended", async () => (await ledger.query("select id from hold")).length === 0);
  for (const { program } of nodes) assert.equal((await program.stop()).code, 0);
  await ledger.settled();
  await ledger.assertSound();

  const accounts = new Map(
    (await ledger.query("select sub, account from person")).map(({ sub, account }) => [
      String(sub),
      String(account),
    ]),
  );
  assert.equal(accounts.size, people, "each person has an account");
  assert.equal(new Set(accounts.values()).size, people, "and nobody shares it");
  const charges = await ledger.query(
    "select id, account, key, base + overage + additional as paid from charge",
  );
  const ofPeople = new Set(accounts.values());
  let paid = 0;
  let found = 0;
  for (const charge of charges) {
    paid += Number(charge.paid);
    assert.ok(ofPeople.has(String(charge.account)), `${charge.id} is paid by a person`);
    const person = sentBy.get(String(charge.id));
    if (person === undefined) continue;
    found += 1;
    assert.equal(charge.account, accounts.get(person), `${charge.id} is paid by ${person}`);
  }
  const [row] = await ledger.query(
    "select counters, running, holds from api_key where id in (select key from charge)",
  );
  assert.deepEqual(
    [spentOf(row?.counters), row?.running, Number(row?.holds)],
    [paid, null, 0],
    "the key has counted what all people paid",
  );
  assert.ok(paid <= capCredits * 1_000_000, "the cap holds");
  const seconds = (performance.now() - startedMs) / 1000;
  console.log(
    `\n${sent} requests (${[...codes].map(([code, n]) => `${n} ${code}`).join(", ")}), ${kills} kills, ${seconds.toFixed(0)} s.\n` +
      `${charges.length} charges, ${found} of requests whose client knows the id: each on the account of its person.\n` +
      `The people paid ${paid / 1_000_000} credits, the key has counted as many, and its cap is ${capCredits}.`,
  );
  for (const { folder } of nodes.slice(1)) await folder[Symbol.asyncDispose]();
}

function configuration(url: string): string {
  return `plans:
  one:
    base: { credits: 1000000, every: P1Y }
    overage: { credits: 0, every: P1Y }
models:
  m: { engine: upstream, url: "${url}", model: m, parallel: 64, price: { prompt: 0, completion: 1000000 } }
`;
}

/** What the only counter of a key has counted. */
function spentOf(counters: unknown): number {
  const [counter] = typeof counters === "string" ? JSON.parse(counters) : [];
  return Number(counter?.at(-1));
}

/** Opens the account of the front end and makes its key, with a cap. */
async function makeKey(operatorUrl: string, credits: number): Promise<string> {
  const post = async (address: string, body: object) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const answer = await fetch(`${operatorUrl}${address}`, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
    });
    const text = await answer.text();
    assert.equal(answer.status, 201, text);
    return JSON.parse(text);
  };
  await post("/admin/accounts", { id: "front", plan: "one" });
  const acts_for = { name: "webui", header, plan: "one", new_accounts_per_day: 1_000_000 };
  const spending_caps = [{ credits, every: "P1D" }];
  const made = await post("/admin/accounts/front/keys", { operation_id: "key", acts_for, spending_caps });
  return String(made.key);
}

/** Sends a request, and notes its id. Returns `ok`, the code of a refusal, or `broken`. */
async function chat(url: string, key: string, person: string, sentBy: Map<string, string>): Promise<string> {
  try {
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", [header]: person },
      body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "hello" }], max_tokens: 20 }),
    });
    sentBy.set(answer.headers.get("x-request-id") ?? "", person);
    const body = JSON.parse(await answer.text());
    return answer.ok ? "ok" : String(body.error.code);
  } catch (error) {
    if (error instanceof TypeError) return "broken";
    throw error;
  }
}
