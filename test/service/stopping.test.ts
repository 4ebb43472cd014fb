/**
 * Signals: running answers finish within the drain time, new requests are refused, a second signal
 * stops at once, and nothing keeps running. SIGHUP only reloads. stopping-start.test.ts has
 * answers that do not finish in time.
 *
 * SIGSTOP halts the engine's process, so that an answer is certainly still running, and SIGCONT
 * resumes it.
 */
import assert from "node:assert/strict";
import { connect } from "node:net";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { startCollector } from "../fixtures/collector.ts";
import { ask, type ChatStream, openStream } from "../fixtures/http-stream.ts";
import { startInside } from "../fixtures/inner-program.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { isRunning, processEnded } from "../fixtures/processes.ts";
import { configure, newFolder, type Program, startProgram } from "../fixtures/program.ts";
import { endless } from "../fixtures/running-requests.ts";
import { releaseTest } from "../fixtures/thorough.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { first, text } from "../fixtures/upstream-events.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

const skip = process.platform === "win32" ? "Windows has no signals" : false;

/** Running answers may finish on a busy machine too. */
const patient = { more: "limits: { drain_seconds: 3600 }\n" };

async function portIsFree(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    socket.on("connect", () => resolve(false)).on("error", () => resolve(true));
    socket.on("close", () => socket.destroy());
  });
}

function receipt(folder: string, stream: ChatStream) {
  const columns = "ending, completion_tokens as completion";
  const [row] = query(folder, `select ${columns} from charge where id = ?`, stream.requestId);
  assert.ok(row !== undefined, "the request has a receipt");
  return row;
}

async function assertGone(service: Program, engine: number, url: string): Promise<void> {
  await processEnded(engine);
  assert.ok(!isRunning(service.process.pid ?? 0));
  assert.ok(await portIsFree(url), "the port is free again");
}

/** How often the configuration has been reloaded. */
function reloads({ stderr }: Program): number {
  return stderr.match(/"msg":"the configuration is reloaded; nothing has changed"/g)?.length ?? 0;
}

test("SIGTERM finishes a running stream and refuses a new request with 503; SIGHUP reloads after the start and until then", {
  skip,
}, async () => {
  await using folder = await newFolder();
  configure(folder.path, patient);
  await using service = startProgram(folder.path);
  await service.shows("Inkwell ");
  service.process.kill("SIGHUP");
  await service.shows("SIGHUP arrived during the start");
  const { url, operatorUrl, key } = await service.up();
  assert.ok(key !== null);
  await until("it is reloaded", () => reloads(service) === 1);
  const limits = { max_tokens: 1000, stream_options: { include_usage: true } };
  const stream = await openStream({ url, key, ...endless, ...limits });
  const engine = service.enginePid();
  // A terminal sends the signal to the engine too.
  process.kill(engine, "SIGHUP");
  process.kill(engine, "SIGSTOP");
  service.process.kill("SIGHUP");
  await until("it is reloaded again", () => reloads(service) === 2);
  assert.equal(service.enginePid(), engine, "the engine was not started again");

  service.process.kill("SIGTERM");
  await service.shows("Stopping: running answers may finish.");
  // It is no second signal that stops at once.
  service.process.kill("SIGHUP");
  await service.shows("the configuration was not reloaded on SIGHUP");
  const refused = await ask({ url, key });
  assert.equal(refused.status, 503);
  assert.equal(refused.headers.get("connection"), "close");
  const { error }: { error: { code: string } } = await jsonOf(refused);
  assert.equal(error.code, "shutting_down");
  const readiness = await fetch(`${operatorUrl}/readyz`);
  assert.equal(readiness.status, 503, "no balancer sends more");

  process.kill(engine, "SIGCONT");
  const rest = await stream.rest();
  assert.deepEqual(
    rest.map((event) => (event === "[DONE]" ? event : (event.choices?.[0]?.finish_reason ?? "usage"))),
    ["length", "usage", "[DONE]"],
  );
  assert.deepEqual(await service.ended, { code: 0, signal: null });
  const { ending, completion } = receipt(folder.path, stream);
  assert.deepEqual({ ending, completion }, { ending: "length", completion: 1000 });
  assertSoundLedger(folder.path);
  await assertGone(service, engine, url);
});

test("stops at once after a second signal, and charges running requests at a later start", {
  skip,
}, async () => {
  await using folder = await newFolder();
  let engine: number;
  {
    await using service = startProgram(folder.path);
    const { url, key } = await service.up();
    assert.ok(key !== null);
    await openStream({ url, key, ...endless });
    engine = service.enginePid();
    process.kill(engine, "SIGSTOP");
    service.process.kill("SIGTERM");
    await service.shows("Stopping: running answers may finish.");
    service.process.kill("SIGTERM");
    assert.deepEqual(await service.ended, { code: 143, signal: null });
    process.kill(engine, "SIGCONT");
    await assertGone(service, engine, url);
  }
  assertSoundLedger(folder.path, { holds: 1 });
});

test("a signal stops a start without creating an account, and the next start prints the key", async () => {
  await using folder = await newFolder();
  {
    await using service = startInside(folder.path);
    await service.shows(/"engine":\d+/);
    assert.equal(await service.stop("SIGINT"), 130, service.stderr);
    assert.match(service.stderr, /Stopped before the service was up\./);
    assert.doesNotMatch(service.stdout, /ink_/);
  }
  await using upstream = await startUpstream();
  configureUpstream(folder.path, upstream);
  await using service = startInside(folder.path);
  assert.ok((await service.up()).key !== null);
});

// test/unit/tracing.test.ts has a late charge, test/unit/ledger-locked.test.ts a locked database.
releaseTest("includes a charge that is recorded at the last moment in its trace", async () => {
  await using collector = await startCollector();
  await using upstream = await startUpstream();
  upstream.play = async (call) => {
    await call.send(first, text("Hello"));
    await call.closed;
  };
  await using folder = await newFolder();
  configureUpstream(folder.path, upstream, `tracing: { endpoint: "${collector.endpoint}" }\n`);
  await using service = startInside(folder.path);
  const { url, operatorUrl, key } = await service.up();
  assert.ok(key !== null);
  const stream = await openStream({ url, key });
  using db = new DatabaseSync(path.join(folder.path, "data", "inkwell.db"), { timeout: 5000 });
  db.exec("begin immediate");
  stream.abort();
  await until("its charge is late", async () =>
    /^inkwell_late_charges 1$/m.test(await (await fetch(`${operatorUrl}/metrics`)).text()),
  );
  service.signal("SIGTERM");
  await until("all that is left to do is to record it", () => portIsFree(operatorUrl));
  await until("the request's end is told", () => collector.spans().some(({ kind }) => kind === "server"));
  db.exec("rollback");
  assert.equal(await service.ended, 0);
  assert.equal(receipt(folder.path, stream).ending, "client_gone");
  const names = collector.spans().map(({ name }) => name);
  assert.ok(names.includes("settle"), `${names}`);
});

async function jsonOf<T>(response: Response): Promise<T> {
  const body: T = JSON.parse(await response.text());
  return body;
}
