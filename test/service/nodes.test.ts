/**
 * Three nodes on one PostgreSQL, as separate programs, give the guarantees of one node. One is
 * killed, and one returns with another configuration.
 */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { ask, openStream } from "../fixtures/http-stream.ts";
import { noPostgres, type Postgres, postgres } from "../fixtures/postgres.ts";
import {
  type Folder,
  miniature,
  newFolder,
  type Program,
  quickEntry,
  startProgram,
  type Up,
} from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";

const token = "the-token-of-all-nodes-0123456789";
const priced = "one-credit-a-token";
const perMinute = 12;
const concurrent = 3;

function configuration(limit: number, price: number): string {
  const engine = `engine: llama, source: ${miniature}, context_window: 4096, parallel: 4, threads: 1, gpu: off`;
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
  program: Program;
  up: Up;
}

describe("three nodes on one PostgreSQL", { skip: noPostgres ?? false }, () => {
  const nodes: Node[] = [];
  let server: Postgres;
  let database = "";
  const sql = (text: string) => server.sql(text, database);

  function startNode(folder: Folder, config = configuration(perMinute, 30)): Program {
    writeFileSync(path.join(folder.path, "inkwell.yaml"), config);
    const env = { INKWELL_DATABASE: server.url(database), INKWELL_OPERATOR_TOKEN: token };
    return startProgram(folder.path, { entry: quickEntry, env });
  }

  before(async () => {
    server = await postgres();
    database = await server.create();
    // At once, on an empty database.
    const started = await Promise.all(
      [0, 1, 2].map(async () => {
        const folder = await newFolder();
        const program = startNode(folder);
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
    // Two tokens each, which none of them ends by itself before.
    const request = (key: string, n: number) =>
      ask({ url: node(n).up.url, key, model: priced, content: "An endless story, please.", max_tokens: 2 });
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

  test("count requests per minute together (litellm#28247)", async () => {
    const key = await account("often", "slow");
    const startedMs = performance.now();
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, n) => ask({ url: node(n).up.url, key, max_tokens: 1 })),
    );
    // One more for each twelfth of a minute that all of it took.
    const refilled = Math.floor(((performance.now() - startedMs) / 60_000) * perMinute);
    const { "200": admitted = 0, ...refused } = await statuses(answers);
    assert.ok(admitted >= perMinute && admitted <= perMinute + refilled, `${admitted}, ${refilled} refilled`);
    assert.deepEqual(refused, { "429 rate_limit_exceeded": 40 - admitted });
  });

  test("count running requests together", async () => {
    const key = await account("many", "narrow");
    const controller = new AbortController();
    const answers = await Promise.all(
      Array.from({ length: 9 }, (_, n) =>
        ask({ url: node(n).up.url, key, content: "An endless story.", stream: true }, controller.signal),
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
  });

  test("end the hold of a killed node by its last checkpoint", async () => {
    const key = await account("cut", "hundred");
    const stream = await openStream({
      url: node(2).up.url,
      key,
      content: "An endless story.",
      logprobs: true,
      top_logprobs: 20,
    });
    const id = stream.requestId;
    const hold = `select completion_tokens as made, prompt_tokens as prompt from hold where id = '${id}'`;
    await until("a checkpoint has been written", async () => Number((await sql(hold))[0]?.made) > 0);
    node(2).program.process.kill("SIGKILL");
    await node(2).program.ended;
    stream.abort();
    const [checkpoint] = await sql(hold);
    await until("its hold has ended", async () => (await sql(hold)).length === 0);
    const receipt = `select ending, completion_tokens as made, prompt_tokens as prompt from charge where id = '${id}'`;
    assert.deepEqual(await sql(receipt), [{ ending: "expired", ...checkpoint }]);
    assert.equal((await ask({ url: node(0).up.url, key, max_tokens: 1 })).status, 200);
  });

  test("log another limit and price of a node, and when that node has left", async () => {
    await node(2).program[Symbol.asyncDispose]();
    const other = startNode(node(2).folder, configuration(perMinute + 1, 31));
    const back = { folder: node(2).folder, program: other, up: await other.up() };
    nodes[2] = back;
    const differing = ["plans", "price of smollm2-135m-instruct"];
    await node(0).program.shows("another node on this database has another configuration");
    const seen = async (n: number) => {
      const { data } = await operator(n, "/admin/nodes");
      assert.ok(Array.isArray(data));
      return data.map((each: { self: boolean; differs: string[] }) => each.differs);
    };
    // The one that was killed lived a moment ago.
    assert.deepEqual(
      (await seen(1)).filter(({ length }) => length > 0),
      [differing],
    );
    const metric = async () => {
      const text = await (await fetch(`${node(0).up.operatorUrl}/metrics`)).text();
      return /^inkwell_config_differs (\d+)/m.exec(text)?.[1];
    };
    assert.equal(await metric(), "2");
    assert.ok((await seen(2)).filter(({ length }) => length > 0).length >= 2, "it sees the others differ");
    assert.deepEqual(await other.stop(), { code: 0, signal: null });
    await node(0).program.shows("all nodes on this database have the same configuration again");
    assert.equal(await metric(), "0");
  });

  test("answer side by side during a rollout by reload, and report the difference until it is over", async () => {
    // The third node has stopped, which each node notices for itself.
    const [first, second] = [node(0), node(1)];
    const key = await account("rollout", "slow");
    const other = configuration(perMinute, 31);
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
    for (const n of [0, 1]) assert.deepEqual(await node(n).program.stop(), { code: 0, signal: null });
    const { broken } = await auditDatabase(server.url(database), null, new AbortController().signal);
    assert.deepEqual(broken, []);
    assert.deepEqual(await sql("select id from hold"), []);
  });
});
