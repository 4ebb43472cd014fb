/**
 * Stops during the start, and failed starts. Models that are ready answer requests meanwhile, and
 * these answers end as at any other stop, within the same times.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { connect } from "node:net";
import path from "node:path";
import { test } from "node:test";
import { migrationLock } from "../../src/store/postgres/schema.ts";
import { type FileServer, startServer } from "../fixtures/file-server.ts";
import { ask, openStream } from "../fixtures/http-stream.ts";
import { inkwell, startInside } from "../fixtures/inner-program.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";
import { openTransaction } from "../fixtures/postgres-session.ts";
import {
  entry,
  environment,
  freePort,
  newFolder,
  type Output,
  quickEntry,
  startProgram,
} from "../fixtures/program.ts";
import { quickTimes } from "../fixtures/quick-times.ts";
import { releaseTest } from "../fixtures/thorough.ts";
import { until } from "../fixtures/until.ts";
import { type Call, startUpstream, type Upstream } from "../fixtures/upstream.ts";
import { done, finish, text, usage } from "../fixtures/upstream-events.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

/** Process 1 of its own container. It gets SIGTERM when it loads the module. */
function startFirst(folder: string, args: readonly string[], module: string) {
  const hook = `import { registerHooks } from "node:module";
registerHooks({ load(url, context, next) {
  if (url.endsWith(${JSON.stringify(module)})) process.kill(process.pid, "SIGTERM");
  return next(url, context);
} });`;
  const preload = `data:text/javascript,${encodeURIComponent(hook)}`;
  const command = [...alone, process.execPath, "--import", preload, entry, ...args];
  // Without the bundles of the tests, which have no modules.
  const env = { ...environment(folder), NODE_OPTIONS: "" };
  const child = spawn("unshare", command, { cwd: folder, env, stdio: ["ignore", "pipe", "inherit"] });
  // It is up.
  child.stdout.on("data", (text) => /Operator/.test(text) && child.kill("SIGKILL"));
  return once(child, "close");
}

const alone = ["--pid", "--fork", "--mount-proc", "--kill-child"];
const noFirst =
  spawnSync("unshare", [...alone, "true"]).status === 0 ? false : "only root can start a process 1 here";

test("as process 1, the program ends if SIGTERM comes while it loads, whatever the command", {
  skip: noFirst,
}, async () => {
  await using folder = await newFolder();
  for (const [args, module] of [
    [["serve"], "/cli/program.ts"],
    [["key", "list"], "/cli/key.ts"],
  ] as const) {
    const [code, signal] = await startFirst(folder.path, args, module);
    assert.deepEqual([code, signal], [143, null], args.join(" "));
  }
});

const skip = process.platform === "win32" ? "Windows has no signals" : false;

interface Service extends Pick<Output, "stderr" | "shows">, AsyncDisposable {
  readonly ended: Promise<number | null>;
  signal(name: "SIGINT" | "SIGTERM"): void;
}

type Start = (folder: string, env: Record<string, string>) => Service;

const inside: Start = (folder, env) => startInside(folder, { env, times: quickTimes });

const asProcess: Start = (folder, env) => {
  const program = startProgram(folder, { entry: quickEntry, env });
  return {
    get stderr() {
      return program.stderr;
    },
    shows: program.shows,
    ended: program.ended.then(({ code }) => code),
    signal: (name) => void program.process.kill(name),
    [Symbol.asyncDispose]: () => program[Symbol.asyncDispose](),
  };
};

interface Starting extends AsyncDisposable {
  readonly folder: string;
  readonly url: string;
  readonly key: string;
  readonly service: Service;
  readonly upstream: Upstream;
  /** Ends the download with an invalid file for the third model, so that the start fails. */
  goOn(): void;
}

/**
 * A service whose first model answers, and whose second one is still being fetched; the start
 * fails at the third.
 */
async function startHalf(drainSeconds: number, start = inside): Promise<Starting> {
  await using stack = new AsyncDisposableStack();
  const { promise: going, resolve: goOn } = Promise.withResolvers<void>();
  const upstream = stack.use(await startUpstream());
  const files: FileServer = stack.use(
    await startServer((_request, response) => {
      void going.then(() => response.end());
    }),
  );
  const folder = stack.use(await newFolder());
  await writeFile(
    path.join(folder.path, "inkwell.yaml"),
    `limits: { drain_seconds: ${drainSeconds}, stream_idle_seconds: 3600 }
models:
  big: { engine: upstream, url: "${upstream.url}", model: vendor/big, context_window: 10000000, price: { prompt: 0, completion: 0 } }
  slow: { engine: llama, source: "${files.origin}/slow.gguf", threads: 1, gpu: off, price: { prompt: 10, completion: 30 } }
  spoilt: { engine: llama, source: ./spoilt.gguf, price: { prompt: 10, completion: 30 } }
`,
  );
  await writeFile(path.join(folder.path, "spoilt.gguf"), "no model at all");
  const port = await freePort();
  const env = { INKWELL_PORT: `${port}` };
  const opened = await inkwell(folder.path, ["account", "create", "acme", "--plan", "starter"], { env });
  assert.equal(opened.code, 0, opened.stderr);
  const { stdout } = await inkwell(folder.path, ["key", "create", "acme", "--json"], { env });
  const [key = assert.fail(stdout)] = /ink_\w+/.exec(stdout) ?? [];
  const service = stack.use(start(folder.path, env));
  const url = `http://127.0.0.1:${port}`;
  await until("the second model is being fetched", () => files.requests.length > 0);
  await until("the first one answers", () =>
    ask({ url, key, model: "none" }).then(
      (answer) => answer.status === 404,
      () => false,
    ),
  );
  const held = stack.move();
  return {
    folder: folder.path,
    url,
    key,
    service,
    upstream,
    goOn,
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

async function endlessly(call: Call): Promise<void> {
  await call.send(text("word "));
  await call.closed;
}

test("lets running answers finish after a stop during the start", async () => {
  await using starting = await startHalf(60);
  const { url, key, service, upstream, folder } = starting;
  const { promise: told, resolve: tell } = Promise.withResolvers<void>();
  upstream.play = async (call) => {
    await call.send(text("one "));
    await told;
    await call.stream(text("two"), finish(), usage(5, 2), done);
  };
  const stream = await openStream({ url, key, model: "big" });
  service.signal("SIGTERM");
  await service.shows(
    /"running":1,"reason":"stopped by SIGTERM while starting",.*running answers may finish/,
  );
  assert.equal((await ask({ url, key, model: "big" })).status, 503);
  tell();
  assert.equal((await stream.rest()).at(-1), "[DONE]");
  assert.equal(await service.ended, 143);
  assert.equal(query(folder, "select ending from charge")[0]?.ending, "stop");
  assertSoundLedger(folder);
});

test("makes no ledger on PostgreSQL after a stop during the start", {
  skip: noPostgres ?? false,
}, async (t) => {
  const server = await postgres();
  const database = await server.create();
  t.after(() => server.drop(database));
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  configureUpstream(folder.path, upstream);
  const lock = `select pg_advisory_xact_lock(${migrationLock})`;
  await using other = await openTransaction(server.url(database), lock);
  await using service = startInside(folder.path, { env: { INKWELL_DATABASE: server.url(database) } });
  await service.shows(/another node creates or upgrades the ledger; this one waits for it/);
  service.signal("SIGTERM");
  await other.rollback();
  assert.equal(await service.ended, 143);
  assert.match(service.stderr, /Stopped before the service was up\./);
  assert.deepEqual(await server.sql("select from pg_namespace where nspname = 'inkwell'", database), []);
});

// test/service/stopping.test.ts and test/http/connections.test.ts have the same after the start.
releaseTest("ends answers with an error after the drain time", { skip }, async () => {
  await using starting = await startHalf(0, asProcess);
  const { url, key, service, upstream, folder } = starting;
  upstream.play = endlessly;
  const stream = await openStream({ url, key, model: "big" });
  service.signal("SIGINT");
  const last = (await stream.rest()).at(-1);
  assert.ok(last !== undefined && last !== "[DONE]");
  assert.equal(last.error?.code, "shutting_down");
  assert.equal(await service.ended, 130);
  assert.match(service.stderr, /Stopped before the service was up\./);
  assert.equal(query(folder, "select ending from charge")[0]?.ending, "shutdown");
  assertSoundLedger(folder);
});

releaseTest(
  "abandons a client that does not read after a failed start, charges its answer and logs it",
  async () => {
    await using starting = await startHalf(0);
    const { url, key, service, upstream, folder } = starting;
    let sent = 0;
    upstream.play = async (call) => {
      for (; !call.isClosed; sent += 1) await call.send(text("word ".repeat(2000)));
    };
    const body = JSON.stringify({
      model: "big",
      messages: [{ role: "user", content: "An endless story." }],
      stream: true,
    });
    const unread = connect(Number(new URL(url).port), "127.0.0.1");
    unread.on("error", () => {}).pause();
    unread.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    let before = 0;
    let rests = 0;
    await until("the answer fills the connection and rests", () => {
      rests = sent > 0 && sent === before ? rests + 1 : 0;
      before = sent;
      return rests > 100;
    });

    starting.goOn();
    const code = await service.ended;
    unread.destroy();
    assert.equal(code, 1, service.stderr);
    assert.match(service.stderr, /"unread":1,.*have not been read to their end/);
    assert.doesNotMatch(service.stderr, /not settled|given up/);
    assert.match(service.stderr, /models\.spoilt\.source: /);
    assert.deepEqual(
      query(folder, "select ending from charge").map(({ ending }) => ending),
      ["shutdown"],
    );
    assertSoundLedger(folder);
  },
);
