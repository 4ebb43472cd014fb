/**
 * PostgreSQL is killed and restarted during requests. They wait for it, and neither a node nor
 * the balancer of deploy/ refuses any.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { ask, openStream } from "../fixtures/http-stream.ts";
import { startInside } from "../fixtures/inner-program.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { noPostgres, start } from "../fixtures/postgres.ts";
import { freePort, newFolder } from "../fixtures/program.ts";
import { quickTimes } from "../fixtures/quick-times.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream, type Upstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

/** Requests wait for the database for 15 s. */
const waitedMs = 12_000;

/** The first answer of the upstream goes on until `finish` is called. */
function firstGoesOn(upstream: Upstream): { finish(): void } {
  let isOver = false;
  upstream.play = async (call) => {
    await call.send(first, text("Hello"));
    while (call === upstream.calls[0] && !isOver && !call.isClosed) {
      await sleep(10);
      await call.send(text(" and"));
    }
    await call.stream(finish(), usage(5, 2), done);
  };
  return {
    finish() {
      isOver = true;
    },
  };
}

test("loses no request during a restart of PostgreSQL, neither running nor new", {
  skip: noPostgres ?? false,
}, async (t) => {
  const server = await start();
  const database = server.url(await server.create());
  await using upstream = await startUpstream();
  const long = firstGoesOn(upstream);
  await using folder = await newFolder();
  configureUpstream(folder.path, upstream);
  const env = { INKWELL_DATABASE: database };
  await using service = startInside(folder.path, { env });
  const { url, operatorUrl, key } = await service.up();
  assert.ok(key !== null);
  const stream = await openStream({ url, key });

  const killedMs = performance.now();
  await server.kill();
  const headers = { authorization: `Bearer ${key}` };
  const arrived = [
    ask({ url, key, max_tokens: 2 }),
    ask({ url, key, max_tokens: 2, stream: true }),
    fetch(`${url}/v1/balance`, { headers }),
    fetch(`${url}/v1/models`, { headers }),
  ];
  await until("it is seen to be away", async () => (await fetch(`${operatorUrl}/readyz`)).status === 503);
  await server.restart();
  const awayMs = performance.now() - killedMs;
  for (const answer of await Promise.all(arrived)) {
    // A machine that takes so long to start the server cannot show it.
    if (awayMs > waitedMs) return t.skip(`PostgreSQL was away for ${Math.round(awayMs)} ms`);
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
  }
  long.finish();
  assert.equal((await stream.rest()).at(-1), "[DONE]");

  assert.equal(await service.stop(), 0);
  assert.doesNotMatch(service.stderr, /"status":5/);
  const { broken } = await auditDatabase(database, null);
  assert.deepEqual(broken, []);
});

test("stops in time while PostgreSQL is unavailable, and logs the missing charges", {
  skip: noPostgres ?? false,
}, async () => {
  const server = await start();
  await using upstream = await startUpstream();
  firstGoesOn(upstream);
  await using folder = await newFolder();
  const database = server.url(await server.create());
  const env = { INKWELL_DATABASE: database };
  configureUpstream(folder.path, upstream, "limits: { drain_seconds: 0 }\n");
  await using service = startInside(folder.path, { times: quickTimes, env });
  const { url, key } = await service.up();
  assert.ok(key !== null);
  const stream = await openStream({ url, key });
  await server.kill();
  const passedMs = startOwnTime();
  assert.equal(await service.stop(), 0);
  const tookMs = passedMs();
  // 2 s for what has ended to be settled; a commit alone is tried for 15.
  assert.ok(tookMs < 10_000, `it took ${tookMs} ms`);
  await assert.rejects(stream.rest());
  assert.match(service.stderr, /"unsettled":1,/);
  assert.match(service.stderr, new RegExp(`"${stream.requestId}".*could not be recorded and is given up`));
  assert.match(
    service.stderr.trimEnd().split("\n").at(-1) ?? "",
    /"msg":"stopped"/,
    "nothing is lost after that",
  );
});

const haproxyConfig = path.join(import.meta.dirname, "../../deploy/haproxy.cfg");
const noHaproxy =
  spawnSync("haproxy", ["-v"]).status === 0
    ? null
    : "this machine has no HAProxy (Debian's package: haproxy)";

interface NodePorts {
  port: number;
  operatorPort: number;
}

/** HAProxy as deploy/haproxy.cfg has it, but for the addresses, and without a rate of requests. */
async function startHaproxy(folder: string, nodes: Record<string, NodePorts>) {
  const port = await freePort();
  const text = readFileSync(haproxyConfig, "utf8")
    .replace(/^resolvers docker\n( .*\n)*/m, "")
    .replace(" resolvers docker", "")
    .replace(" port 8081", "")
    .replace(/^ {2}http-request deny .*\n/m, "")
    .replace("bind :8080", `bind 127.0.0.1:${port}`)
    .replace(/^ {2}server \S+ (node-\w+):8080/gm, (line, host: string) => {
      const node = nodes[host];
      assert.ok(node !== undefined, `${host} runs`);
      return `${line.replace(`${host}:8080`, `127.0.0.1:${node.port}`)} port ${node.operatorPort}`;
    });
  const file = path.join(folder, "haproxy.cfg");
  writeFileSync(file, text);
  const child = spawn("haproxy", ["-db", "-f", file], { stdio: ["ignore", "pipe", "pipe"] });
  let log = "";
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (t) => (log += t));
  const ended = once(child, "close");
  return {
    url: `http://127.0.0.1:${port}`,
    get log() {
      return log;
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

test("refuses no request in HAProxy while no node is ready", {
  skip: noPostgres ?? noHaproxy ?? false,
}, async (t) => {
  const server = await start();
  const database = server.url(await server.create());
  await using stack = new AsyncDisposableStack();
  const upstream = stack.use(await startUpstream());
  const nodes: Record<string, NodePorts> = {};
  let key: string | null = null;
  for (const name of ["node-a", "node-b"]) {
    const folder = stack.use(await newFolder());
    const ports = { port: await freePort(), operatorPort: await freePort() };
    configureUpstream(folder.path, upstream);
    const program = stack.use(
      startInside(folder.path, {
        env: {
          INKWELL_DATABASE: database,
          INKWELL_PORT: `${ports.port}`,
          INKWELL_OPERATOR_PORT: `${ports.operatorPort}`,
        },
      }),
    );
    key = (await program.up()).key ?? key;
    nodes[name] = ports;
  }
  assert.ok(key !== null);
  const folder = stack.use(await newFolder());
  const balancer = stack.use(await startHaproxy(folder.path, nodes));
  const at = { url: balancer.url, key };
  await until("the balancer sends requests on", async () =>
    ask({ ...at, max_tokens: 1 }).then(
      async (answer) => (await answer.text()) !== "" && answer.ok,
      () => false,
    ),
  );

  let over = false;
  const codes: string[] = [];
  const answered = async () => {
    const answer = await ask({ ...at, max_tokens: 2 });
    const text = await answer.text();
    codes.push(`${answer.status} ${text}`);
  };
  const clients = Array.from({ length: 4 }, async () => {
    while (!over) await answered();
  });
  const killedMs = performance.now();
  await server.kill();
  await until("the balancer takes both nodes for dead", () =>
    Object.keys(nodes).every((name) => balancer.log.includes(`Server nodes/${name} is DOWN`)),
  );
  const arrived = Array.from({ length: 10 }, answered);
  await server.restart();
  const awayMs = performance.now() - killedMs;
  await Promise.all(arrived);
  await until("the balancer has noticed", () => balancer.log.includes("Server nodes/node-a is UP"));
  over = true;
  await Promise.all(clients);
  if (awayMs > waitedMs) return t.skip(`PostgreSQL was away for ${Math.round(awayMs)} ms`);
  assert.deepEqual(
    codes.filter((code) => !code.startsWith("200 ")),
    [],
  );
  t.diagnostic(`away for ${Math.round(awayMs)} ms, ${codes.length} requests, all answered`);
});
