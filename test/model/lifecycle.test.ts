/** Requests while the real child process is killed, orphaned or interrupted. */
import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { type Engine, EngineError, type EngineFailure, type Generation } from "../../src/chat/engine.ts";
import type { LlamaEngine } from "../../src/engines/llama/process/engine.ts";
import {
  ask,
  begin,
  collect,
  miniaturePath,
  prepare,
  RecordedLog,
  startMiniature,
} from "../fixtures/llama-engine.ts";
import { isRunning, processEnded } from "../fixtures/processes.ts";
import { share } from "../fixtures/thorough.ts";
import { until } from "../fixtures/until.ts";

const endless = "Something endless, please.";
const stallMs = 2500;

/** One for tests that leave it ready and without answers, with whatever child. */
let shared: LlamaEngine;
const log = new RecordedLog();

before(async () => {
  shared = await startMiniature({ parallel: 1, stallMs, restartWaitMs: 60_000, log });
});

after(() => shared.close());

function failsWith(failure: EngineFailure): (error: unknown) => boolean {
  return (error) => error instanceof EngineError && error.failure === failure;
}

/** Reads a few events, so that the generation has begun for sure. */
async function readSome(generation: Generation): Promise<AsyncIterator<unknown>> {
  const events = generation[Symbol.asyncIterator]();
  for (let count = 0; count < 3; count++) await events.next();
  return events;
}

async function isReady(engine: Engine): Promise<void> {
  await until("the engine is ready", () => engine.state === "ready");
}

/** Kills the child. Resolves when the engine has seen it. It starts another one at once. */
async function killChild(engine: { pid: number | undefined }): Promise<void> {
  const killed = childOf(engine);
  process.kill(killed, "SIGKILL");
  await until("the end of the child is seen", () => engine.pid !== killed);
}

function childOf(engine: { pid: number | undefined }): number {
  assert.ok(engine.pid !== undefined);
  return engine.pid;
}

test("when the child is killed, running answers fail with their usage, and waiting and new ones are answered", async () => {
  const engine = shared;
  const running = await begin(engine, endless, { maxTokens: 900 });
  const events = await readSome(running);
  const waiting = ask(engine, "Hi", { maxTokens: 3 });
  const killed = childOf(engine);
  process.kill(killed, "SIGKILL");
  await assert.rejects(async () => {
    for (let next = await events.next(); !next.done; ) next = await events.next();
  }, failsWith("failed"));
  assert.ok(running.started);
  assert.ok(running.usage.completionTokens >= 3);
  await running.stop();
  assert.equal((await waiting).usage.completionTokens, 3);
  assert.equal(engine.state, "ready");
  assert.notEqual(engine.pid, killed);
  assert.equal((await ask(engine, "Hi", { maxTokens: 2 })).usage.completionTokens, 2);
  assert.ok(log.lines.some((line) => line.startsWith("error") && line.includes("SIGKILL")));
});

test("answers requests that arrive during a restart of the child", async () => {
  for (let round = 0; round < share(2); round++) {
    await killChild(shared);
    assert.equal((await ask(shared, "Hi", { maxTokens: 2 })).usage.completionTokens, 2);
  }
});

test("a generation that is stopped without a child ends at once", async () => {
  const running = await begin(shared, endless, { maxTokens: 900 });
  await readSome(running);
  process.kill(childOf(shared), "SIGKILL");
  await running.stop();
  await isReady(shared);
});

test("requests wait a limited time for a child that cannot be started, then fail as unavailable", async () => {
  const folder = await mkdtemp(join(tmpdir(), "inkwell-lifecycle-"));
  const modelPath = join(folder, "model.gguf");
  await copyFile(miniaturePath, modelPath);
  const engine = await startMiniature({ modelPath, parallel: 1, restartWaitMs: 300 });
  const running = await begin(engine, endless, { maxTokens: 900 });
  await readSome(running);
  const waiting = await begin(engine, "Hi");
  await rm(modelPath);
  process.kill(childOf(engine), "SIGKILL");
  await assert.rejects(collect(waiting), failsWith("unavailable"));
  assert.equal(engine.state, "unavailable");
  await assert.rejects(prepare(engine, "Hi"), failsWith("unavailable"));
  await copyFile(miniaturePath, modelPath);
  await isReady(engine);
  assert.equal((await ask(engine, "Hi", { maxTokens: 2 })).usage.completionTokens, 2);
  await engine.close();
  await rm(folder, { recursive: true });
});

test("kills a child that hangs during a prompt, and the next child answers", async (t) => {
  const log = new RecordedLog();
  const engine = await startMiniature({ parallel: 1, restartWaitMs: 1000, stallMs, log });
  t.after(() => engine.close());
  const hung = childOf(engine);
  process.kill(hung, "SIGSTOP");
  await assert.rejects(prepare(engine, "Hi"), failsWith("timeout"));
  await processEnded(hung);
  await isReady(engine);
  assert.equal((await ask(engine, "Hi", { maxTokens: 2 })).usage.completionTokens, 2);
  assert.ok(log.lines.some((line) => line.includes("has not counted a prompt for too long")));
});

test("kills a child that hangs during a stop, ends the stop, and answers the next request", async () => {
  const engine = shared;
  const running = await begin(engine, endless, { maxTokens: 900 });
  await readSome(running);
  const hung = childOf(engine);
  process.kill(hung, "SIGSTOP");
  await running.stop();
  await processEnded(hung);
  assert.ok(running.usage.completionTokens >= 3);
  assert.ok(log.lines.some((line) => line.includes("has made no progress for too long")));
  assert.equal((await ask(engine, "Hi", { maxTokens: 2 })).usage.completionTokens, 2);
});

test("the child survives Ctrl-C and a stop of its process group until its parent ends it", async () => {
  const engine = shared;
  const pid = childOf(engine);
  const answer = ask(engine, endless, { maxTokens: 200 });
  process.kill(pid, "SIGINT");
  process.kill(pid, "SIGTERM");
  assert.equal((await answer).usage.completionTokens, 200);
  assert.equal(engine.pid, pid);
});

test("leaves no process behind when it is closed during a restart", async () => {
  const engine = shared;
  await killChild(engine);
  await until("another child is there", () => engine.pid !== undefined);
  const restarted = childOf(engine);
  await engine.close();
  await processEnded(restarted);
  assert.equal(engine.state, "closed");
});

test("the child ends when the service is killed during a generation", async () => {
  const host = fork(new URL("../fixtures/llama-host.ts", import.meta.url), [], {
    stdio: ["ignore", "pipe", "inherit", "ipc"],
  });
  assert.ok(host.stdout !== null);
  const [line] = await once(createInterface({ input: host.stdout }), "line");
  const child = Number(line);
  assert.ok(isRunning(child));
  host.kill("SIGKILL");
  await processEnded(child);
});

test("lowers threads to the number of cores and logs it", async () => {
  const log = new RecordedLog();
  const cores = availableParallelism();
  const engine = await startMiniature({ threads: cores + 1, log });
  await engine.close();
  const lowered = `threads is lowered from ${cores + 1} to the number of cores, ${cores}`;
  assert.ok(log.lines.some((line) => line.startsWith("warn") && line.includes(lowered)));
  assert.ok(log.lines.some((line) => line.includes("model loaded") && line.includes(` ${cores} threads)`)));
});
