/**
 * Many people behind the key of one front end, on one node over SQLite or two nodes over
 * PostgreSQL, or one with workers, which are killed (`kill -9`) again and again. At the end:
 *
 * - each charge is on the account of the person who sent its request, and names the key;
 * - the cap of the key has counted exactly what all people paid, and no more than it allows;
 * - so has each of the four caps of each person, of which most persons reach one;
 * - the ledger is sound, and no hold is left.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { SqlRow } from "../test/fixtures/backends.ts";
import { answerLoad } from "../test/fixtures/load-upstream.ts";
import { isRunning } from "../test/fixtures/processes.ts";
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
/** An answer has 12 tokens of a credit each. The prompt costs nothing. */
const answerCredits = 12;
/** A quarter of the requests go to a model that a cap of its own limits. */
const dearShare = 0.25;

interface FrontEndOptions {
  store: string;
  seed: number;
  people: number;
  requests: number;
  workers: number;
  /** The longest time between two kills. */
  upMsMax: number;
}

interface Node {
  folder: Folder;
  env: Record<string, string>;
  program: Program;
  url: string;
  operatorUrl: string;
}

export async function tortureFrontEnd(options: FrontEndOptions): Promise<void> {
  const { store, seed, people, requests, workers, upMsMax } = options;
  console.log(`${store}: ${requests} requests of ${people} people behind one front end, seed ${seed}`);
  const startedMs = performance.now();
  const random = randomFrom(seed);
  await using upstream = await startUpstream(answerLoad);
  await using ledgerFolder = await newFolder();
  const open = ledgers[store];
  assert.ok(open !== undefined);
  const ledger = await open(ledgerFolder.path);
  const capCredits = Math.floor(requests * 0.7) * answerCredits;
  const caps = capsOf(requests / people);
  const start = async (known: Omit<Node, "program" | "url" | "operatorUrl">): Promise<Node> => {
    const program = startProgram(known.folder.path, { entry: quickEntry, env: known.env });
    return { ...known, program, ...(await program.up()) };
  };
  const nodes: Node[] = [];
  for (let n = 0; n < (store === "SQLite" || workers > 1 ? 1 : 2); n += 1) {
    const folder = n === 0 ? ledgerFolder : await newFolder();
    writeFileSync(
      path.join(folder.path, "inkwell.yaml"),
      `${configuration(upstream.url, caps)}workers: ${workers}\n`,
    );
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
    const model = random() < dearShare ? "big" : "m";
    sent += 1;
    const code = await chat({ url, key, person, model }, sentBy);
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
      const started = workersOf(node);
      // One of its workers, or the first process, with which all of them die.
      const worker = started.filter(isRunning)[Math.floor(random() * (workers + 1))];
      if (worker !== undefined) {
        process.kill(worker, "SIGKILL");
        kills += 1;
        await until("it is started again", () => workersOf(node).length > started.length);
        continue;
      }
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
    "select id, account, key, model, at_ms, base + overage + additional as paid from charge",
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
    [countersIn(row?.counters)[0]?.at(-1), row?.running, Number(row?.holds)],
    [paid, null, 0],
    "the key has counted what all people paid",
  );
  assert.ok(paid <= capCredits * 1_000_000, "the cap holds");
  const reached = assertCaps(caps, charges, await ledger.query("select id, counters from account"));
  const seconds = (performance.now() - startedMs) / 1000;
  console.log(
    `\n${sent} requests (${[...codes].map(([code, n]) => `${n} ${code}`).join(", ")}), ${kills} kills, ${seconds.toFixed(0)} s.\n` +
      `${charges.length} charges, ${found} of requests whose client knows the id: each on the account of its person.\n` +
      `The people paid ${paid / 1_000_000} credits, the key has counted as many, and its cap is ${capCredits}.\n` +
      `Of the people, so many have less than an answer left of a cap: ${reached}.`,
  );
  for (const { folder } of nodes.slice(1)) await folder[Symbol.asyncDispose]();
}

interface Cap {
  name: string;
  credits: number;
  /** The part of the plan, as YAML. */
  yaml: string;
  models: readonly string[];
}

/** Returns caps of which people who send so many requests reach some. */
function capsOf(requestsEach: number): Cap[] {
  const cap = (name: string, part: number, yaml: string, models = ["m", "big"]): Cap => {
    const credits = Math.max(1, Math.round(requestsEach * part)) * answerCredits;
    return { name, credits, yaml: `{ credits: ${credits}, ${yaml} }`, models };
  };
  return [
    cap("PT5H", 0.8, "every: PT5H"),
    cap("P1W", 0.9, "every: P1W, align: calendar"),
    cap("P1M", 1, "every: P1M"),
    cap("dear", 0.2, 'name: dear, every: P1D, align: calendar, models: ["b*"]', ["big"]),
  ];
}

/**
 * Checks that each counter has what its account paid in its window, which the cap allows.
 * Returns how many have reached each cap.
 */
function assertCaps(caps: readonly Cap[], charges: readonly SqlRow[], accounts: readonly SqlRow[]): string {
  const ofAccount = Map.groupBy(charges, ({ account }) => String(account));
  const reached = new Map(caps.map(({ name }) => [name, 0]));
  for (const { id, counters } of accounts) {
    for (const { name, credits, models } of caps) {
      const counter = countersIn(counters).find(([of]) => of === name);
      const [fromMs, untilMs] = [Number(counter?.[4] ?? 0), Number(counter?.[5] ?? Number.POSITIVE_INFINITY)];
      let paid = 0;
      for (const { model, at_ms, paid: micro } of ofAccount.get(String(id)) ?? []) {
        const isCounted = Number(at_ms) >= fromMs && Number(at_ms) < untilMs;
        if (isCounted && models.includes(String(model))) paid += Number(micro);
      }
      const spentMicro = Number(counter?.at(-1) ?? 0);
      assert.equal(spentMicro, paid, `${id} has paid what the cap ${name} has counted`);
      const leftMicro = credits * 1_000_000 - spentMicro;
      assert.ok(leftMicro >= 0, `${id} has passed the cap ${name} by ${-leftMicro}`);
      if (leftMicro < answerCredits * 1_000_000) reached.set(name, (reached.get(name) ?? 0) + 1);
    }
  }
  return [...reached].map(([name, times]) => `${name} ${times}`).join(", ");
}

function configuration(url: string, caps: readonly Cap[]): string {
  const model = (id: string) =>
    `  ${id}: { engine: upstream, url: "${url}", model: m, parallel: 64, price: { prompt: 0, completion: 1000000 } }`;
  return `plans:
  one:
    base: { credits: 1000000, every: P1Y }
    overage: { credits: 0, every: P1Y }
    caps: [${caps.map(({ yaml }) => yaml).join(", ")}]
models:
${model("m")}
${model("big")}
`;
}

/** Returns the process ids of all workers that a service has started. */
function workersOf({ program }: Node): number[] {
  const ups = program.stderr.matchAll(/"pid":(\d+),"msg":"a worker is up"/g);
  return [...ups].map(([, pid]) => Number(pid));
}

/** Returns the counters of a cell, which SQLite has as text. */
function countersIn(cell: unknown): unknown[][] {
  return (typeof cell === "string" ? JSON.parse(cell) : cell) ?? [];
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

interface Asked {
  url: string;
  key: string;
  person: string;
  model: string;
}

/** Sends a request, and notes its id. Returns `ok`, the code of a refusal, or `broken`. */
async function chat(asked: Asked, sentBy: Map<string, string>): Promise<string> {
  const { url, key, person, model } = asked;
  try {
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", [header]: person },
      body: JSON.stringify({ model, messages: [{ role: "user", content: "hello" }], max_tokens: 20 }),
    });
    sentBy.set(answer.headers.get("x-request-id") ?? "", person);
    const body = JSON.parse(await answer.text());
    return answer.ok ? "ok" : String(body.error.code);
  } catch (error) {
    if (error instanceof TypeError) return "broken";
    throw error;
  }
}
