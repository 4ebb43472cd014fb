/**
 * Three nodes on one PostgreSQL with different files during a rollout of plans, under load: no
 * request fails, each answer is charged, limits are exact, and no node brings old plans back.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { ask } from "../fixtures/http-stream.ts";
import { startInside } from "../fixtures/inner-program.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";
import { newFolder } from "../fixtures/program.ts";
import { quickTimes } from "../fixtures/quick-times.ts";
import { minute } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const token = "the-token-of-all-nodes-0123456789";
/** Credits of an answer: two tokens, at one credit each. */
const answerCost = 2;

function plan(credits: number, more = ""): string {
  return `{ base: { credits: ${credits}, every: P1Y }, overage: { credits: 0, every: P1Y }${more} }`;
}

function limited(perMinute: number): string {
  return plan(100_000, `, limits: { requests_per_minute: ${perMinute} }`);
}

/** No node dies, so that no hold has to expire soon. */
const times = { ...quickTimes, holdTtlMs: minute };

test("a rollout of plans on three nodes under load", {
  skip: noPostgres ?? false,
}, async () => {
  await using stack = new AsyncDisposableStack();
  const upstream = stack.use(await startUpstream());
  upstream.play = async (call) => {
    await call.stream(first, text("Hello world"), finish(), usage(5, 2), done);
  };
  const file = (plans: Record<string, string>, rest = "") => {
    const lines = Object.entries(plans).map(([id, each]) => `  ${id}: ${each}\n`);
    const model = `{ engine: upstream, url: "${upstream.url}", model: m, parallel: 64, price: { prompt: 0, completion: 1000000 } }`;
    return `plans:\n${lines.join("")}models:\n  small: ${model}\n${rest}`;
  };
  const old = file({ sixty: plan(60), steady: plan(1_000_000), slow: limited(12) });
  /** Adds a plan, and changes credits and a limit. */
  const newer = file({ sixty: plan(80), steady: plan(1_000_000), slow: limited(20), pro: plan(1000) });
  /** Removes a plan in use. */
  const newest = file({ sixty: plan(80), slow: limited(20), pro: plan(1000) });

  const server = await postgres();
  const database = await server.create();
  const sql = (statement: string) => server.sql(statement, database);
  const env = { INKWELL_DATABASE: server.url(database), INKWELL_OPERATOR_TOKEN: token };
  const folders = await Promise.all([0, 1, 2].map(async () => stack.use(await newFolder())));
  const write = (n: number, config: string) =>
    writeFileSync(path.join(folders[n]?.path ?? "", "inkwell.yaml"), config);
  const start = async (n: number) => {
    const program = stack.use(startInside(folders[n]?.path ?? "", { times, env }));
    return { program, up: await program.up() };
  };
  for (const n of [0, 1, 2]) write(n, old);
  const nodes = await Promise.all([0, 1, 2].map(start));
  const node = (n: number) => {
    const found = nodes[n % 3];
    assert.ok(found !== undefined);
    return found;
  };

  async function operator(n: number, address: string, body?: object) {
    const response = await fetch(`${node(n).up.operatorUrl}${address}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const answer: Record<string, unknown> = JSON.parse(await response.text());
    return { status: response.status, answer };
  }
  async function account(n: number, id: string, planId: string): Promise<string> {
    const opened = await operator(n, "/admin/accounts", { id, plan: planId });
    assert.equal(opened.status, 201, JSON.stringify(opened.answer));
    const { answer } = await operator(n + 1, `/admin/accounts/${id}/keys`, { operation_id: `first-${id}` });
    return String(answer.key);
  }
  async function reload(n: number, config: string) {
    write(n, config);
    return await operator(n, "/admin/reload", {});
  }
  const warningsOf = async (n: number) => JSON.stringify((await operator(n, "/readyz")).answer.warnings);

  const keys = { hot: await account(0, "hot", "sixty"), steady: await account(1, "steady", "steady") };
  let isOver = false;
  const counts = { hot: 0, steady: 0 };
  const unexpected: string[] = [];
  async function send(n: number, key: string): Promise<number> {
    const response = await ask({ url: node(n).up.url, key, model: "small", max_tokens: 2 });
    const body = await response.text();
    if (response.status !== 200 && !/insufficient_credits|credits_reserved|rate_limit_exceeded/.test(body))
      unexpected.push(`${response.status} ${body}`);
    return response.status;
  }
  async function client(n: number, name: keyof typeof counts): Promise<void> {
    for (let turn = n; !isOver; turn += 1) {
      const status = await send(turn, keys[name]);
      if (status === 200) counts[name] += 1;
      else if (name === "steady") unexpected.push(`${status} for the steady account`);
    }
  }
  /** Sends requests at once, and returns how many were admitted and how many were refilled. */
  async function burst(key: string, count: number, perMinute: number, to: (n: number) => number) {
    const startedMs = performance.now();
    const statuses = await Promise.all(Array.from({ length: count }, (_, n) => send(to(n), key)));
    const refilled = Math.floor(((performance.now() - startedMs) / 60_000) * perMinute);
    return { admitted: statuses.filter((status) => status === 200).length, refilled };
  }
  const clients = Promise.all([0, 1, 2].flatMap((n) => [client(n, "hot"), client(n, "steady")]));
  clients.catch(() => {});
  const progress = async () => {
    const before = counts.steady;
    await until("requests are answered", () => counts.steady >= before + 6 || unexpected.length > 0);
  };
  await progress();

  // The first node gets a new file. The others know its plans at once.
  const first0 = await reload(0, newer);
  assert.partialDeepStrictEqual(first0.answer, {
    plans: { added: ["pro"], changed: ["sixty", "slow"], retired: [], superseded: false },
  });
  const pro = await account(1, "paula", "pro");
  assert.equal(await send(2, pro), 200, "a node with the old file serves the new plan");
  const often = await account(2, "often", "slow");
  const everywhere = await burst(often, 40, 20, (n) => n);
  assert.ok(
    everywhere.admitted >= 20 && everywhere.admitted <= 20 + everywhere.refilled,
    JSON.stringify(everywhere),
  );
  for (const n of [1, 2]) {
    await until("it warns", async () => (await warningsOf(n)).includes("inkwell plans apply"));
    await node(n).program.shows(/not in use, because newer ones replaced them/);
  }
  await progress();

  // A node that reloads the old file does not bring its plans back. A broken file changes nothing.
  const again = await reload(1, `${old}log: { level: debug }\n`);
  assert.partialDeepStrictEqual(again.answer, {
    plans: { added: [], changed: [], retired: [], superseded: true },
    settings: ["log.level"],
  });
  const broken = await reload(1, `${newest}loud: true\n`);
  assert.equal(broken.status, 422);
  await progress();

  // A file that removes a plan in use, and reloads of all nodes at once.
  write(1, newest);
  write(2, newest);
  const reloads = await Promise.all([1, 2, 1, 2].map((n) => operator(n, "/admin/reload", {})));
  for (const { status, answer } of reloads)
    assert.ok(status === 200 || (status === 409 && JSON.stringify(answer).includes("cannot_reload_now")));
  const retired = reloads.filter(({ answer }) =>
    JSON.stringify(answer.plans)?.includes('"retired":["steady"]'),
  );
  assert.equal(retired.length, 1, "one of them applies the section");
  assert.match(JSON.stringify(retired[0]?.answer.warnings), /steady \(1 account\)/);
  await until("the first node warns", async () => (await warningsOf(0)).includes("inkwell plans apply"));
  await progress();
  const refusedPlan = await operator(0, "/admin/accounts", { id: "late", plan: "steady" });
  assert.match(JSON.stringify(refusedPlan), /retired/);

  await until(
    "the busy account has spent its grant",
    () => counts.hot >= 60 / answerCost || unexpected.length > 0,
  );

  // A restart with the file from before.
  isOver = true;
  await clients;
  assert.deepEqual(unexpected, []);
  await node(0).program.stop();
  nodes[0] = await start(0);
  assert.match(await warningsOf(0), /inkwell plans apply/);
  assert.equal(await send(0, keys.steady), 200);
  counts.steady += 1;
  const { answer: shown } = await operator(0, "/admin/plans");
  assert.ok(Array.isArray(shown.data));
  assert.deepEqual(
    shown.data.map(({ id, offered, accounts }) => [id, offered, accounts]),
    [
      ["sixty", true, 2],
      ["slow", true, 1],
      ["pro", true, 1],
      ["steady", false, 1],
    ],
  );

  assert.equal(counts.hot, 60 / answerCost, "the grant of the running window is exact");
  const charged = await sql(
    "select account, count(*) as n, sum(cost) / 1000000 as credits, sum(shortfall) as lacking from charge where account in ('hot', 'steady') group by 1 order by 1",
  );
  const expected = (name: keyof typeof counts) => ({
    account: name,
    n: counts[name],
    credits: counts[name] * answerCost,
    lacking: 0,
  });
  assert.deepEqual(
    charged.map((row) => ({
      ...row,
      n: Number(row.n),
      credits: Number(row.credits),
      lacking: Number(row.lacking),
    })),
    [expected("hot"), expected("steady")],
  );
  for (const { program } of nodes) assert.equal(await program.stop(), 0);
  assert.deepEqual(await sql("select id from hold"), []);
  const { broken: faults } = await auditDatabase(server.url(database), null);
  assert.deepEqual(faults, []);
});
