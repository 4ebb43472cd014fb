/**
 * A rolling restart under load: two services on one ledger behind a balancer that checks
 * `/readyz` restart in turn. No request fails, and the ledger is sound.
 *
 * The balancer is minimal: it alternates between the services that were ready at the last check
 * and never repeats a request. So it is the services that keep requests from failing.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { createServer, request as httpRequest } from "node:http";
import path from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Readiness } from "../../src/http/admin/server.ts";
import { ask, openStream } from "../fixtures/http-stream.ts";
import { startInside } from "../fixtures/inner-program.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { freePort, newFolder, startProgram, type Up } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";

const skip = process.platform === "win32" ? "Windows has no signals" : false;

const configuration = (upstream: string) => `plans:
  starter: { base: { credits: 1000000, every: P1D }, overage: { credits: 0, every: P1M } }
models:
  smollm2-135m-instruct: { engine: upstream, url: "${upstream}", model: m, price: { prompt: 10, completion: 30 } }
limits: { unready_seconds: "\${UNREADY_SECONDS:-0}" }
`;

/** The parts of an answer, and the time between them. */
const story = { parts: 10, everyMs: 50 };

/** Between two looks at `/readyz`; far less than the services leave it. */
const lookEveryMs = 200;

interface Node {
  port: number;
  operatorPort: number;
}

interface Balancer extends AsyncDisposable {
  readonly url: string;
  /** Requests that each node was given, in the order of the nodes. */
  readonly given: readonly number[];
  isReady(node: number): boolean;
}

async function startBalancer(nodes: readonly Node[]): Promise<Balancer> {
  const ready = nodes.map(() => false);
  const given = nodes.map(() => 0);
  const closing = new AbortController();
  const looking = nodes.map(async ({ operatorPort }, index) => {
    while (!closing.signal.aborted) {
      const answer = await fetch(`http://127.0.0.1:${operatorPort}/readyz`).catch(() => null);
      await answer?.text();
      ready[index] = answer?.status === 200;
      await sleep(lookEveryMs);
    }
  });
  let turn = 0;
  const server = createServer((request, response) => {
    const able = nodes.map((_, index) => index).filter((index) => ready[index] === true);
    const index = able[turn++ % able.length] ?? 0;
    given[index] = (given[index] ?? 0) + 1;
    const { method, url, headers } = request;
    const onward = httpRequest(
      { host: "127.0.0.1", port: nodes[index]?.port, method, path: url, headers },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
        answer.on("error", () => response.destroy());
      },
    );
    onward.on("error", () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
    request.pipe(onward);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  assert.ok(address !== null && typeof address !== "string");
  return {
    url: `http://127.0.0.1:${address.port}`,
    given,
    isReady: (node) => ready[node] === true,
    async [Symbol.asyncDispose]() {
      closing.abort();
      await Promise.all(looking);
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/**
 * Asks again and again until `isOver`, answers streamed and whole in turn; how many there were.
 */
async function load(at: { url: string; key: string }, isOver: () => boolean): Promise<number> {
  let n = 0;
  for (; !isOver(); n += 1) {
    if (n % 2 === 0) {
      const stream = await openStream(at);
      assert.equal((await stream.rest()).at(-1), "[DONE]", "a stream is whole");
    } else {
      const whole = await ask(at);
      assert.equal(whole.status, 200, await whole.text());
    }
  }
  return n;
}

test("fails no request while two services restart in turn under load", { skip }, async () => {
  await using upstream = await startUpstream();
  upstream.play = async (call) => {
    await call.send(first);
    for (let n = 0; n < story.parts; n += 1) {
      await sleep(story.everyMs);
      await call.send(text("word "));
    }
    await call.stream(finish(), usage(5, story.parts), done);
  };
  await using folder = await newFolder();
  await writeFile(path.join(folder.path, "inkwell.yaml"), configuration(upstream.url));
  const nodes: Node[] = [
    { port: await freePort(), operatorPort: await freePort() },
    { port: await freePort(), operatorPort: await freePort() },
  ];
  const env = ({ port, operatorPort }: Node) => ({
    INKWELL_PORT: `${port}`,
    INKWELL_OPERATOR_PORT: `${operatorPort}`,
  });
  const unready = { UNREADY_SECONDS: "3" };
  await using programs = new AsyncDisposableStack();
  const running: { stop(): Promise<unknown> }[] = [];
  let key: Up["key"] = null;
  for (const node of nodes) {
    const options = { env: { ...env(node), ...unready } };
    // One of them as a process, for its signal and its exit code.
    const start = running.length === 0 ? startProgram : startInside;
    const program = programs.use(start(folder.path, options));
    key = (await program.up()).key ?? key;
    running.push(program);
  }
  assert.ok(key !== null);
  await using balancer = await startBalancer(nodes);
  await until("both nodes are ready", () => balancer.isReady(0) && balancer.isReady(1));

  const successors = [];
  let over = false;
  const at = { url: balancer.url, key };
  const clients = Promise.all(Array.from({ length: 4 }, () => load(at, () => over)));
  clients.catch(() => {});
  for (const [index, node] of nodes.entries()) {
    const before = balancer.given[index] ?? 0;
    await until("the node is at work", () => (balancer.given[index] ?? 0) > before + 4);
    assert.deepEqual(await running[index]?.stop(), index === 0 ? { code: 0, signal: null } : 0);
    const program = programs.use(startInside(folder.path, { env: env(node) }));
    await program.up();
    successors.push(program);
    await until("the node is back", () => balancer.isReady(index));
  }
  over = true;
  const asked = (await clients).reduce((sum, each) => sum + each, 0);

  const charged = query(folder.path, "select ending, count(*) as n from charge group by ending");
  assert.deepEqual(
    charged.map(({ ending }) => ending).filter((ending) => ending !== "stop" && ending !== "length"),
    [],
  );
  assert.equal(
    charged.reduce((sum, { n }) => sum + Number(n), 0),
    asked,
    "each request is charged once",
  );
  for (const program of successors) assert.equal(await program.stop(), 0);
  assertSoundLedger(folder.path);
});

test("continues the documented rolling restart only if every model is ready", async (t) => {
  const docs = readFileSync(path.join(import.meta.dirname, "../../docs/operating/postgresql.md"), "utf8");
  const [, script = ""] = /until docker compose[^"]*?node -e "([^"]*)"/s.exec(docs) ?? [];
  assert.match(script, /127\.0\.0\.1:8081/);
  let answer: [status: number, readiness: object] = [503, {}];
  const server = createServer((request, response) => {
    assert.equal(request.url, "/readyz");
    const [status, readiness] = answer;
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(readiness));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const address = server.address();
  assert.ok(address !== null && typeof address !== "string");
  const goesOn = async () => {
    const here = script.replace("127.0.0.1:8081", `127.0.0.1:${address.port}`);
    const child = spawn(process.execPath, ["-e", here], { stdio: "ignore" });
    const [code] = await once(child, "close");
    return code === 0;
  };
  const rows: [status: number, readiness: Omit<Readiness, "last_reload" | "warnings">, isReady: boolean][] = [
    [
      200,
      { ready: true, store: "ok", clock: "ok", draining: false, models: { a: "ready", b: "starting" } },
      false,
    ],
    [
      200,
      { ready: true, store: "ok", clock: "ok", draining: false, models: { a: "ready", b: "ready" } },
      true,
    ],
    [
      503,
      {
        ready: false,
        store: "unreachable",
        clock: "ok",
        draining: false,
        models: { a: "ready", b: "ready" },
      },
      false,
    ],
    [
      503,
      { ready: false, store: "ok", clock: "ok", draining: true, models: { a: "ready", b: "ready" } },
      false,
    ],
  ];
  for (const [status, readiness, isReady] of rows) {
    answer = [status, readiness];
    assert.equal(await goesOn(), isReady, JSON.stringify(readiness));
  }
  server.close();
  server.closeAllConnections();
  assert.equal(await goesOn(), false, "nobody listens");
});
