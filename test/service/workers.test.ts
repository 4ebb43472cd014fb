/**
 * `workers: 2`: processes that share the listeners of one service on PostgreSQL, and look like one
 * service to its clients, its operators and its metrics.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, describe, test } from "node:test";
import type { Readiness } from "../../src/http/admin/server.ts";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { openStream } from "../fixtures/http-stream.ts";
import { noPostgres, type Postgres, postgres } from "../fixtures/postgres.ts";
import { openTransaction } from "../fixtures/postgres-session.ts";
import { isRunning } from "../fixtures/processes.ts";
import {
  type Folder,
  freePort,
  newFolder,
  type Program,
  quickEntry,
  startProgram,
  type Up,
} from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream, type Upstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

const token = "the-token-of-all-workers-0123456789";
const auth = { authorization: `Bearer ${token}` };

const tooFew =
  '{ engine: upstream, url: "http://a:1/v1", model: m, parallel: 1, price: { prompt: 1, completion: 2 } }';

type Line = Record<string, unknown>;

describe("two workers on one PostgreSQL", { skip: noPostgres ?? false }, () => {
  let server: Postgres;
  let upstream: Upstream;
  let database = "";
  let folder: Folder;
  let program: Program;
  let up: Up;
  let key = "";

  const sql = (statement: string) => server.sql(statement, database);
  const start = () => {
    const env = {
      INKWELL_DATABASE: server.url(database),
      INKWELL_OPERATOR_TOKEN: token,
      INKWELL_PORTAL_PORT: "0",
    };
    return startProgram(folder.path, { entry: quickEntry, env });
  };
  const configure = (more = "") => configureUpstream(folder.path, upstream, `workers: 2\n${more}`);

  before(async () => {
    server = await postgres();
    database = await server.create();
    upstream = await startUpstream();
    folder = await newFolder();
    configure();
    program = start();
    up = await program.up();
    key = up.key ?? assert.fail("the first start issues a key");
  });

  after(async () => {
    await program?.[Symbol.asyncDispose]();
    await folder?.[Symbol.asyncDispose]();
    await upstream?.[Symbol.asyncDispose]();
  });

  /** Over a connection of its own, so that the workers take turns. */
  const closing = { connection: "close" };

  async function chat(): Promise<string> {
    const response = await fetch(`${up.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...closing },
      body: JSON.stringify({ model: "smollm2-135m-instruct", messages: [{ role: "user", content: "Ink?" }] }),
    });
    const body = await response.text();
    assert.equal(response.status, 200, body);
    return response.headers.get("x-request-id") ?? "";
  }

  async function operator(address: string, method = "GET"): Promise<Line> {
    const response = await fetch(`${up.operatorUrl}${address}`, { method, headers: { ...auth, ...closing } });
    const body: Line = JSON.parse(await response.text());
    assert.ok(response.ok, JSON.stringify(body));
    return body;
  }

  async function readiness(): Promise<Readiness & { status: number }> {
    const response = await fetch(`${up.operatorUrl}/readyz`, { headers: closing });
    const found: Readiness = JSON.parse(await response.text());
    return { ...found, status: response.status };
  }

  async function metric(pattern: RegExp): Promise<number> {
    const response = await fetch(`${up.operatorUrl}/metrics`, { headers: closing });
    const found = (await response.text()).match(new RegExp(`^${pattern.source} (\\S+)$`, "m"));
    return Number(found?.[1] ?? assert.fail(`no ${pattern.source}`));
  }

  function lines(message: string): Line[] {
    return program.stderr.split("\n").flatMap((line) => {
      if (!line.includes(`"msg":"${message}`)) return [];
      const parsed: Line = JSON.parse(line);
      return [parsed];
    });
  }

  const answered = () =>
    program.stderr.split("\n").flatMap((line) => {
      if (!line.includes('"requestId"')) return [];
      const parsed: Line = JSON.parse(line);
      return [parsed];
    });

  test("answer on one port, start once, and name themselves in the log", async () => {
    const ids = await Promise.all(Array.from({ length: 12 }, chat));
    assert.equal(program.stdout.match(/API +http/g)?.length, 1, program.stdout);
    assert.deepEqual(await sql("select id from account"), [{ id: "default" }]);
    const workers = () => [...new Set(answered().map(({ worker }) => worker))].toSorted();
    // A worker that is slow to accept a connection gets no other one meanwhile.
    await until("both have answered", async () => {
      ids.push(await chat());
      return workers().length === 2;
    });
    assert.deepEqual(workers(), [1, 2]);
    assert.deepEqual((await sql("select id from charge")).length, ids.length);
    const [, portal = ""] = /Portal +(\S+)/.exec(program.stdout) ?? [];
    for (let n = 0; n < 4; n += 1) {
      const page = await fetch(portal, { headers: closing });
      assert.match(await page.text(), /<!doctype html>/i);
    }
  });

  test("count their requests together, and show what runs as one service", async () => {
    const asked = /inkwell_requests_total\{endpoint="\/v1\/chat\/completions",status="200",code=""\}/;
    const counted = await metric(asked);
    await Promise.all(Array.from({ length: 10 }, chat));
    await until("all are counted", async () => (await metric(asked)) === counted + 10);
    assert.equal(await metric(/inkwell_nodes/), 2);
    assert.equal(await metric(/inkwell_model_ready\{model="smollm2-135m-instruct"\}/), 1);

    const { play } = upstream;
    upstream.play = async (call) => {
      await call.send(first, text("Hello"));
      await call.closed;
    };
    const streams = await Promise.all(
      Array.from({ length: 6 }, () => openStream({ url: up.url, key, max_tokens: 100 })),
    );
    // Whichever worker is asked.
    for (let n = 0; n < 4; n += 1) {
      const { data } = await operator("/admin/requests");
      assert.ok(Array.isArray(data));
      const ids = data.map((each: { request_id: string; here: boolean }) => each.request_id);
      assert.deepEqual(ids, streams.map(({ requestId }) => requestId).toSorted());
      const { running, models } = await operator("/admin/overview");
      assert.ok(Array.isArray(models));
      assert.equal(models[0].load.running, 6);
      assert.deepEqual(running, { ...Object(running), running: 6, waiting: 0, elsewhere: 0 });
      const live = await operator("/admin/accounts/default/live");
      assert.equal(live.running, 6);
    }
    assert.equal(await metric(/inkwell_running_requests/), 6);
    for (const stream of streams) stream.abort();
    await until("they end", async () => (await metric(/inkwell_running_requests/)) === 0);
    upstream.play = play;
  });

  test("go on if one is killed in the middle of streams, and start it again", async () => {
    const asked = /inkwell_requests_total\{endpoint="\/v1\/chat\/completions",status="200",code=""\}/;
    const { play } = upstream;
    const go = Promise.withResolvers<void>();
    upstream.play = async (call) => {
      await call.send(first, text("Hello"));
      await Promise.race([go.promise, call.closed]);
      await call.stream(text(" world"), finish(), usage(3, 2), done);
    };
    const streams = await Promise.all(
      Array.from({ length: 8 }, () => openStream({ url: up.url, key, max_tokens: 100 })),
    );
    // From now on new requests are answered at once.
    upstream.play = play;
    const counted = await metric(asked);
    const [killed] = lines("a worker is up");
    assert.ok(typeof killed?.pid === "number");
    process.kill(killed.pid, "SIGKILL");
    await program.shows("a worker has died and is started again");
    const down = await readiness();
    assert.deepEqual([down.status, down.ready], [503, false]);
    assert.ok(down.warnings.includes("1 of 2 workers do not answer."), down.warnings.join());
    // The counters of the worker that died stay.
    assert.ok((await metric(asked)) >= counted);
    await Promise.all(Array.from({ length: 4 }, chat));
    go.resolve();
    const ends = await Promise.allSettled(streams.map((stream) => stream.rest()));
    const whole = ends.filter(({ status }) => status === "fulfilled").length;
    assert.ok(whole > 0 && whole < streams.length, `${whole} streams of ${streams.length} went on`);
    await until("it is started again", () => lines("a worker is up").length === 3);
    await until("the service is ready", async () => (await readiness()).status === 200);
    await until(
      "the holds of the killed worker expire",
      async () => (await sql("select id from hold")).length === 0,
    );
    const perEnding = await sql(
      "select ending, count(*) as n from charge where ending in ('expired') group by 1",
    );
    assert.deepEqual(perEnding, [{ ending: "expired", n: streams.length - whole }]);
    const before = new Set(answered().map(({ worker }) => worker));
    await until("the new worker answers", async () => {
      await chat();
      return answered().some(({ worker }) => worker === 3);
    });
    assert.ok(!before.has(3));
    assert.ok((await metric(asked)) >= counted + 5);
  });

  test("let no client wait that came while one was killed", async () => {
    const ups = lines("a worker is up").length;
    let isOver = false;
    const counts = { answered: 0, cut: 0 };
    const client = async () => {
      while (!isOver) {
        const headers = { authorization: `Bearer ${key}`, ...closing };
        const answer = await fetch(`${up.url}/v1/models`, { headers }).catch(() => null);
        // A connection that nobody has any more has no end.
        await answer?.text().catch(() => null);
        counts[answer === null ? "cut" : "answered"] += 1;
      }
    };
    const clients = Array.from({ length: 16 }, client);
    await until("they are answered", () => counts.answered > 50);
    const { pid } = lines("a worker is up").at(-1) ?? assert.fail("a worker is up");
    process.kill(Number(pid), "SIGKILL");
    await until("it is started again", () => lines("a worker is up").length > ups);
    isOver = true;
    await Promise.all(clients);
    assert.ok(counts.cut > 0, "some lost their connection");
    await until("the service is ready", async () => (await readiness()).status === 200);
  });

  test("reload together, by a request or a signal, and keep who reloaded once", async () => {
    const reloads = () => lines("the configuration is reloaded").length;
    const change = (messages: number) => configure(`limits: { messages: ${messages} }\n`);
    const rows = async () => (await sql("select kind from change_log where kind = 'reload'")).length;
    change(100);
    const { settings, warnings } = await operator("/admin/reload", "POST");
    assert.deepEqual({ settings, warnings }, { settings: ["limits.messages"], warnings: [] });
    await until("both have reloaded", () => reloads() === 2);
    assert.equal(await rows(), 1);
    change(101);
    const signalledMs = Date.now();
    const shownMs = async () => Date.parse((await readiness()).last_reload?.at ?? "");
    await using listed = await openTransaction(
      server.url(database),
      "lock table change_log in exclusive mode",
    );
    program.process.kill("SIGHUP");
    await until("one has reloaded", () => reloads() === 3);
    // Until it is in the list, another reload would be refused. A few readings meet each worker.
    for (let n = 0; n < 6; n += 1) assert.ok((await shownMs()) < signalledMs, "it has not ended");
    await listed.rollback();
    await until("both have reloaded", () => reloads() === 4);
    await until("its end is shown", async () => (await shownMs()) >= signalledMs);
    const reloaded = lines("the configuration is reloaded").slice(2);
    assert.deepEqual(
      reloaded.map(({ settings: each }) => each),
      [["limits.messages"], ["limits.messages"]],
    );
    assert.equal(await rows(), 2);
    configureUpstream(folder.path, upstream, `  second: ${tooFew}\nworkers: 1\n`);
    await assert.rejects(operator("/admin/reload"), /second\.parallel is 1, too few for 2 processes/);
    await assert.rejects(operator("/admin/reload", "POST"), /second\.parallel is 1, too few for 2 processes/);
    configure("limits: { messages: none }\n");
    await assert.rejects(operator("/admin/reload", "POST"), /configuration_invalid/);
    await until("one of them says why", () => lines("the configuration was not reloaded").length === 2);
  });

  test("start again with the running configuration, whatever the file has become", async () => {
    const ups = lines("a worker is up");
    const { pid } = ups.at(-1) ?? assert.fail("a worker is up");
    process.kill(Number(pid), "SIGKILL");
    await until("it is started again", () => lines("a worker is up").length > ups.length);
    await until("the service is ready", async () => (await readiness()).status === 200);
  });

  test("reload once more if one of them was starting during a reload, and nothing that came later", async () => {
    const reloads = lines("the configuration is reloaded").length;
    // A start waits for it, after the worker has got its configuration.
    await using migrating = await openTransaction(
      server.url(database),
      "lock table migration in access exclusive mode",
    );
    const waiting =
      "select pid from pg_locks where locktype = 'relation' and not granted and database = (select oid from pg_database where datname = current_database())";
    const { pid } = lines("a worker is up").at(-1) ?? assert.fail("a worker is up");
    process.kill(Number(pid), "SIGKILL");
    await until("it is starting again", async () => (await sql(waiting)).length === 1);
    configure("limits: { messages: 102 }\n");
    const { settings, warnings } = await operator("/admin/reload", "POST");
    const silent = ["A worker did not reload: it does not answer."];
    assert.deepEqual({ settings, warnings }, { settings: ["limits.messages"], warnings: silent });
    assert.equal(lines("a worker did not reload").at(-1)?.reason, "it does not answer.");
    configure("limits: { messages: 103 }\n");
    await migrating.rollback();
    const reloaded = () =>
      lines("the configuration is reloaded")
        .slice(reloads)
        .filter(({ settings: each }) => Array.isArray(each) && each.join() === "limits.messages");
    await until("the new worker has reloaded", () => reloaded().length === 2);
    await until("the service is ready", async () => (await readiness()).status === 200);
    assert.equal(lines("the configuration is reloaded").length, reloads + 2);
    const { changes } = await operator("/admin/reload");
    assert.ok(Array.isArray(changes));
    assert.deepEqual(
      changes.map(({ before, after }) => [before, after]),
      [["102", "103"]],
    );
  });

  test("start beside clients who connect before a worker is up, and wait", async () => {
    await using other = await newFolder();
    configureUpstream(other.path, upstream, "workers: 2\n");
    const port = await freePort();
    await using waiting = new AsyncDisposableStack();
    let isUp = false;
    const knock = async () => {
      while (!isUp) {
        const socket = connect({ host: "127.0.0.1", port });
        waiting.defer(() => void socket.destroy());
        // Refused, or closed by the start.
        socket.on("error", () => {});
        await once(socket, "connect").catch(() => {});
      }
    };
    const knocking = Array.from({ length: 4 }, knock);
    const env = { INKWELL_DATABASE: server.url(database), INKWELL_PORT: String(port) };
    await using node = startProgram(other.path, { entry: quickEntry, env });
    await node.up().finally(() => {
      isUp = true;
    });
    await Promise.all(knocking);
  });

  test("let running answers finish at SIGTERM, and leave a sound ledger", async () => {
    const go = Promise.withResolvers<void>();
    upstream.play = async (call) => {
      await call.send(first, text("Hello"));
      await go.promise;
      await call.stream(text(" world"), finish(), usage(3, 2), done);
    };
    const streams = await Promise.all(
      Array.from({ length: 6 }, () => openStream({ url: up.url, key, max_tokens: 100 })),
    );
    // A terminal sends its signals to all processes. Only that of the first one counts.
    for (const { pid } of lines("a worker is up"))
      if (isRunning(Number(pid))) process.kill(Number(pid), "SIGINT");
    program.process.kill("SIGTERM");
    await until("both are stopping", () => lines("stopping").length === 2);
    go.resolve();
    for (const stream of streams) assert.equal((await stream.rest()).at(-1), "[DONE]");
    assert.deepEqual(await program.ended, { code: 0, signal: null });
    const { broken } = await auditDatabase(server.url(database), null);
    assert.deepEqual(broken, []);
    assert.deepEqual(await sql("select id from hold"), []);
  });

  test("say a mistake of the start once", async () => {
    configure();
    const env = { INKWELL_DATABASE: server.url("no_such_database"), INKWELL_OPERATOR_TOKEN: token };
    await using failing = startProgram(folder.path, { entry: quickEntry, env });
    assert.deepEqual(await failing.ended, { code: 1, signal: null });
    assert.equal(failing.stderr.match(/has no database/g)?.length, 1, failing.stderr);
  });
});
