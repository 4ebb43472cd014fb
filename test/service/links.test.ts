/**
 * A class of 400 joins by one link with 350 seats: from one address, on two nodes over one
 * PostgreSQL, of which one is killed in between.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { fieldsOf, listOf } from "../fixtures/operator.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";
import { freePort, newFolder, quickEntry, startProgram } from "../fixtures/program.ts";
import { startUpstream } from "../fixtures/upstream.ts";

const token = "the-token-of-all-nodes-0123456789";
const people = 400;
const seats = 350;
/** Browsers at the same time. A portal takes no more connections of one address than a quarter. */
const browsers = 60;
/** People who have an answer when the node is killed. */
const killedAfter = 120;

interface Answer {
  status: number;
  body: Record<string, unknown>;
  cookie: string;
}

async function send(url: string, body: object, headers: Record<string, string>): Promise<Answer> {
  const sent = { "content-type": "application/json", ...headers };
  const response = await fetch(url, { method: "POST", headers: sent, body: JSON.stringify(body) });
  const text = await response.text();
  const cookie = (response.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
  return { status: response.status, body: JSON.parse(text), cookie };
}

test("400 people join by a link with 350 seats while one of two nodes is killed", {
  skip: noPostgres ?? false,
}, async () => {
  const server = await postgres();
  const database = await server.create();
  await using upstream = await startUpstream();
  const model = `{ engine: upstream, url: "${upstream.url}", model: m, price: { prompt: 10, completion: 30 } }`;
  await using folders = new AsyncDisposableStack();
  const startNode = async () => {
    const folder = folders.use(await newFolder());
    const portal = `http://127.0.0.1:${await freePort()}`;
    writeFileSync(
      path.join(folder.path, "inkwell.yaml"),
      `plans: { student: { base: { credits: 100, every: P1Y }, overage: { credits: 0, every: P1Y } } }
models: { small: ${model} }
portal: { url: "${portal}" }\n`,
    );
    const env = {
      INKWELL_DATABASE: server.url(database),
      INKWELL_OPERATOR_TOKEN: token,
      INKWELL_PORTAL_PORT: new URL(portal).port,
    };
    const program = folders.use(startProgram(folder.path, { entry: quickEntry, env }));
    const { operatorUrl } = await program.up();
    return { program, portal, operatorUrl };
  };
  const nodes = [await startNode(), await startNode()] as const;
  const [killed, other] = nodes;
  const operator = { authorization: `Bearer ${token}` };
  const ends_at = new Date(Date.now() + 86_400_000).toISOString();
  const wanted = { operation_id: "class", name: "Informatics 1", plan: "student", seats, ends_at };
  const made = await send(`${other.operatorUrl}/admin/links`, wanted, operator);
  assert.equal(made.status, 201, JSON.stringify(made.body));
  const [, code = ""] = String(made.body.link).split("#join=");

  let answered = 0;
  let repeated = 0;
  let isKilled: Promise<unknown> | null = null;
  const answers: Answer[] = [];
  /** Repeats with the same join id, at the other node, until somebody answers. */
  async function join(n: number): Promise<void> {
    const own = { join_id: `browser-${n}`.padEnd(22, "-"), name: `Student ${n}` };
    for (let at = n; ; at += 1) {
      const { portal } = nodes[at % 2 === 0 ? 0 : 1];
      const asked = send(`${portal}/api/session`, { join: { code, ...own } }, pageHeader);
      const answer = await asked.catch(() => null);
      if (answer === null || answer.status >= 500) {
        repeated += 1;
        assert.ok(at - n < 200, `no node answers: ${answer?.status}`);
        continue;
      }
      answers[n] = answer;
      answered += 1;
      if (answered >= killedAfter) isKilled ??= killed.program.stop("SIGKILL");
      return;
    }
  }
  const beganMs = performance.now();
  const waiting = Array.from({ length: people }, (_, n) => n).values();
  await Promise.all(
    Array.from({ length: browsers }, async () => {
      for (const n of waiting) await join(n);
    }),
  );
  await isKilled;
  const tookMs = performance.now() - beganMs;
  assert.ok(repeated > 0, "some have lost their answer");

  const inside = answers.filter(({ status }) => status === 200);
  const outside = answers.filter(({ status }) => status !== 200);
  const codes = outside.map(({ status, body }) => `${status} ${fieldsOf(body.error).code}`);
  assert.deepEqual(
    codes,
    Array.from({ length: people - seats }, () => "403 link_full"),
  );
  assert.equal(inside.length, seats);
  const accounts = new Set<string>();
  for (const { cookie } of inside) {
    const response = await fetch(`${other.portal}/api/account`, { headers: { ...pageHeader, cookie } });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    accounts.add(String(JSON.parse(text).account));
  }
  assert.equal(accounts.size, seats, "each has an account of their own");
  const [row] = await server.sql(
    `select (select taken from link) as taken, (select count(*) from link_seat) as seats,
       (select count(*) from account where id <> 'default') as accounts,
       (select count(*) from person) as people`,
    database,
  );
  assert.deepEqual(row, { taken: seats, seats, accounts: seats, people: seats });
  const names = await server.sql("select count(distinct name) as n from person", database);
  assert.deepEqual(names, [{ n: seats }], "nobody has joined twice");
  const list = await fetch(`${other.operatorUrl}/admin/links`, { headers: operator });
  assert.partialDeepStrictEqual(listOf(fieldsOf(await list.json()).data), [{ state: "full", taken: seats }]);
  assert.deepEqual((await auditDatabase(server.url(database), Date.now())).broken, []);
  // 60 s is the target on a quiet machine.
  assert.ok(tookMs < 300_000, `${Math.round(tookMs)} ms`);
});
