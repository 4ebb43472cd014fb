/**
 * Three nodes on one PostgreSQL give the guarantees of one node. The first is a process of its
 * own. The third returns with another configuration. Limits per minute: plan-rollout.test.ts.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { ask } from "../fixtures/http-stream.ts";
import { startInside } from "../fixtures/inner-program.ts";
import { noPostgres, type Postgres, postgres } from "../fixtures/postgres.ts";
import {
  type Folder,
  newFolder,
  type Output,
  quickEntry,
  startProgram,
  type Up,
} from "../fixtures/program.ts";
import { quickTimes } from "../fixtures/quick-times.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream, type Upstream } from "../fixtures/upstream.ts";
import { first, text } from "../fixtures/upstream-events.ts";

const token = "the-token-of-all-nodes-0123456789";
const priced = "one-credit-a-token";
const perMinute = 12;
const concurrent = 3;

function configuration({ url }: Upstream, limit: number, price: number): string {
  const engine = `engine: upstream, url: "${url}", model: m, parallel: 64`;
  return `plans:
  hundred:
    base: { credits: 100, every: P1Y }
    overage: { credits: 0, every: P1Y }
  ten:
    base: { credits: 10, every: P1Y }
    overage: { credits: 0, every: P1Y }
  slow:
    base: { credits: 1000, every: P1Y }
    overage: { credits: 0, every: P1Y }
    limits: { requests_per_minute: ${limit} }
  narrow:
    base: { credits: 1000, every: P1Y }
    overage: { credits: 0, every: P1Y }
    limits: { concurrent: ${concurrent} }
models:
  smollm2-135m-instruct: { ${engine}, price: { prompt: 10, completion: ${price} } }
  ${priced}: { ${engine}, price: { prompt: 0, completion: 1000000 } }
`;
}

interface Node {
  folder: Folder;
  program: Pick<Output, "stderr" | "shows"> & AsyncDisposable & { stop(): Promise<unknown> };
  up: Up;
}

describe("three nodes on one PostgreSQL", { skip: noPostgres ?? false }, () => {
  const nodes: Node[] = [];
  let server: Postgres;
  let upstream: Upstream;
  let database = "";
  const sql = (text: string) => server.sql(text, database);

  function startNode(n: number, folder: Folder, config = configuration(upstream, perMinute, 30)) {
    writeFileSync(path.join(folder.path, "inkwell.yaml"), config);
    const env = { INKWELL_DATABASE: server.url(database), INKWELL_OPERATOR_TOKEN: token };
    return n === 0
      ? startProgram(folder.path, { entry: quickEntry, env })
      : startInside(folder.path, { times: quickTimes, env });
  }

  before(async () => {
    server = await postgres();
    database = await server.create();
    upstream = await startUpstream();
    // At once, on an empty database.
    const started = await Promise.all(
      [0, 1, 2].map(async (n) => {
        const folder = await newFolder();
        const program = startNode(n, folder);
        return { folder, program, up: await program.up() };
      }),
    );
    nodes.push(...started);
  });

  after(async () => {
    for (const { program, folder } of nodes) {
      await program[Symbol.asyncDispose]();
      await folder[Symbol.asyncDispose]();
    }
    await upstream?.[Symbol.asyncDispose]();
  });

  function node(n: number): Node {
    const found = nodes[n % nodes.length];
    assert.ok(found !== undefined);
    return found;
  }

  async function operator(n: number, address: string, body?: object): Promise<Record<string, unknown>> {
    const response = await fetch(`${node(n).up.operatorUrl}${address}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    assert.ok(response.ok, text);
    const parsed: Record<string, unknown> = JSON.parse(text);
    return parsed;
  }

  /** Each through another node. */
  async function account(id: string, plan: string): Promise<string> {
    await operator(0, "/admin/accounts", { id, plan });
    const { key } = await operator(1, `/admin/accounts/${id}/keys`, { operation_id: `first-${id}` });
    return String(key);
  }

  async function statuses(answers: readonly Response[]): Promise<Record<string, number>> {
    const count: Record<string, number> = {};
    for (const answer of answers) {
      const { error }: { error?: { code: string } } = JSON.parse(await answer.text());
      const status = error === undefined ? "200" : `${answer.status} ${error.code}`;
      count[status] = (count[status] ?? 0) + 1;
    }
    return count;
  }

  test("create one first account with one key if they start together on an empty database", async () => {
    assert.equal(nodes.filter(({ up }) => up.key !== null).length, 1);
    assert.deepEqual(await sql("select id from account"), [{ id: "default" }]);
  });

  test("never overspend a busy account that can pay for 50 of 120 requests (maximhq/bifrost#3547, BerriAI/litellm#28247)", async () => {
    const hot = await account("hot", "hundred");
    const others = await Promise.all(["a", "b", "c"].map((name) => account(`beside-${name}`, "ten")));
    // Two tokens each.
    const request = (key: string, n: number) =>
      ask({ url: node(n).up.url, key, model: priced, max_tokens: 2 });
    const [hotAnswers, ...otherAnswers] = await Promise.all(
      [hot, ...others].map(async (key, n) => {
        const count = n === 0 ? 120 : 9;
        return await statuses(await Promise.all(Array.from({ length: count }, (_, m) => request(key, m))));
      }),
    );
    assert.equal(hotAnswers?.["200"], 50, JSON.stringify(hotAnswers));
    for (const answers of otherAnswers) assert.equal(answers["200"], 5, JSON.stringify(answers));
    const rows = await sql(
      "select id, base_amount - base_spent - base_held as base, holds from account where id <> 'default' order by id",
    );
    for (const row of rows) assert.deepEqual({ base: row.base, holds: row.holds }, { base: 0, holds: 0 });
    // The hold of a starved node may expire before its first token, and its request is refused.
    const perAccount = await sql(
      `select account, count(*) filter (where ending <> 'expired' or completion_tokens > 0) as n,
         sum(shortfall) as lacking from charge group by 1 order by 1`,
    );
    assert.deepEqual(perAccount, [
      { account: "beside-a", n: 5, lacking: 0 },
      { account: "beside-b", n: 5, lacking: 0 },
      { account: "beside-c", n: 5, lacking: 0 },
      { account: "hot", n: 50, lacking: 0 },
    ]);
  });

  test("count running requests together", async () => {
    const key = await account("many", "narrow");
    const { play } = upstream;
    upstream.play = async (call) => {
      await call.send(first, text("Hello"));
      await call.closed;
    };
    const controller = new AbortController();
    const answers = await Promise.all(
      Array.from({ length: 9 }, (_, n) =>
        ask({ url: node(n).up.url, key, max_tokens: 100, stream: true }, controller.signal),
      ),
    );
    const running = answers.filter(({ status }) => status === 200);
    const refused = await statuses(answers.filter(({ status }) => status !== 200));
    assert.equal(running.length, concurrent, JSON.stringify(refused));
    assert.deepEqual(refused, { "429 concurrency_limit_exceeded": 9 - concurrent });
    controller.abort();
    await until("all have ended", async () => {
      const [row] = await sql("select holds from account where id = 'many'");
      return row?.holds === 0;
    });
    upstream.play = play;
  });

  test("log another limit and price of a node, and when that node has left", async () => {
    await node(2).program.stop();
    const other = startNode(2, node(2).folder, configuration(upstream, perMinute + 1, 31));
    const back = { folder: node(2).folder, program: other, up: await other.up() };
    nodes[2] = back;
    const differing = ["plans", "price of smollm2-135m-instruct"];
    await node(0).program.shows("another node on this database has another configuration");
    const seen = async (n: number) => {
      const { data } = await operator(n, "/admin/nodes");
      assert.ok(Array.isArray(data));
      return data.map((each: { self: boolean; differs: string[] }) => each.differs);
    };
    const differ = async (n: number) => (await seen(n)).filter(({ length }) => length > 0);
    await until("the second node sees it", async () => (await differ(1)).length > 0);
    assert.deepEqual(await differ(1), [differing]);
    const metric = async () => {
      const text = await (await fetch(`${node(0).up.operatorUrl}/metrics`)).text();
      return /^inkwell_config_differs (\d+)/m.exec(text)?.[1];
    };
    await until("the metric counts the settings", async () => (await metric()) === "2");
    await until("it sees that the others differ", async () => (await differ(2)).length === 2);
    assert.equal(await other.stop(), 0);
    await node(0).program.shows("all nodes on this database have the same configuration again");
    assert.equal(await metric(), "0");
  });

  test("answer side by side during a rollout by reload, and report the difference until it is over", async () => {
    // The third node has stopped, which each node notices for itself.
    const [first, second] = [node(0), node(1)];
    const key = await account("rollout", "slow");
    const other = configuration(upstream, perMinute, 31);
    const reload = async (n: number, config: string) => {
      writeFileSync(path.join(node(n).folder.path, "inkwell.yaml"), config);
      return await operator(n, "/admin/reload", {});
    };
    const priceOn = async ({ up }: Node) => {
      const answer = await ask({ url: up.url, key, max_tokens: 1 });
      const answered = await answer.text();
      assert.equal(answer.status, 200, answered);
      const id = answer.headers.get("x-request-id");
      const [receipt] = await sql(`select price_completion as price from charge where id = '${id}'`);
      return receipt?.price;
    };
    const differing = async (n: number) => {
      const { data } = await operator(n, "/admin/nodes");
      assert.ok(Array.isArray(data));
      return data.flatMap((each: { differs: string[] }) => each.differs);
    };
    const warnings = ({ program }: Node) =>
      program.stderr.match(/another node on this database has another configuration/g)?.length ?? 0;
    const agreements = ({ program }: Node) =>
      program.stderr.match(/all nodes on this database have the same configuration again/g)?.length ?? 0;
    for (const n of [0, 1]) await until("the nodes agree", async () => (await differing(n)).length === 0);
    const before = { warnings: warnings(second), agreements: agreements(second) };

    assert.deepEqual((await reload(0, other)).prices, ["smollm2-135m-instruct"]);
    await until("the reloaded node reports it", async () => (await differing(0)).length > 0);
    await until("the other node reports it", async () => (await differing(1)).length > 0);
    assert.deepEqual(await differing(1), ["price of smollm2-135m-instruct"]);
    await until("the other node logs it", () => warnings(second) > before.warnings);
    assert.deepEqual([await priceOn(first), await priceOn(second)], [31, 30]);

    await reload(1, other);
    await until("the first node sees agreement", async () => (await differing(0)).length === 0);
    await until("the second node sees agreement", async () => (await differing(1)).length === 0);
    await until("the other node logs it", () => agreements(second) > before.agreements);
    assert.deepEqual([await priceOn(first), await priceOn(second)], [31, 31]);
  });

  test("stop cleanly with a sound ledger", async () => {
    assert.deepEqual(await node(0).program.stop(), { code: 0, signal: null });
    assert.equal(await node(1).program.stop(), 0);
    const { broken } = await auditDatabase(server.url(database), null);
    assert.deepEqual(broken, []);
    assert.deepEqual(await sql("select id from hold"), []);
  });
});
