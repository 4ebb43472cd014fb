/** The first process of a service with workers: when it starts one again, and when it gives up. */
import assert from "node:assert/strict";
import cluster from "node:cluster";
import { EventEmitter } from "node:events";
import { type TestContext, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { deserialize } from "node:v8";
import { WorkerHere } from "../../src/app/worker-here.ts";
import { Workers } from "../../src/app/workers.ts";
import { fieldOf } from "../../src/objects.ts";
import { load } from "../fixtures/configuration.ts";
import { loggerTo } from "../fixtures/service.ts";

const config = load(`database: postgres://u@db.example/inkwell
workers: 2
models:
  big: { engine: upstream, url: "http://a:1/v1", model: m, price: { prompt: 1, completion: 2 } }
`);

const stopSignals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** A worker without a process. */
class FakeWorker extends EventEmitter {
  readonly id: number;
  readonly process = Object.assign(new EventEmitter(), { pid: 1, send: () => true });

  constructor(id: number) {
    super();
    this.id = id;
  }

  isConnected(): boolean {
    return true;
  }

  readonly told: unknown[] = [];

  send(message: unknown): void {
    this.told.push(message);
  }

  up(): void {
    this.emit("message", { kind: "hello" });
    this.emit("message", { kind: "up", shown: { banner: {}, signInCode: null } });
  }
}

function isReload(message: unknown): message is { argument: Uint8Array } {
  return fieldOf(message, "kind") === "ask" && fieldOf(message, "question") === "reload";
}

/** Workers that start without a process, in their order. */
function fakeWorkers(t: TestContext): FakeWorker[] {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const started: FakeWorker[] = [];
  t.mock.method(cluster, "setupPrimary", () => {});
  t.mock.method(cluster, "fork", () => {
    const worker = new FakeWorker(started.length + 1);
    started.push(worker);
    return worker;
  });
  return started;
}

test("a worker that cannot start is tried for as long as another one is up", async (t) => {
  const started = fakeWorkers(t);
  const workers = new Workers(config, loggerTo([]), () => {});
  const ended = workers.run();
  for (const n of [0, 1]) started[n]?.up();
  // The database is away: it waits with its charges, and no other one can start.
  const [waiting, killed] = started;
  killed?.emit("exit", null, "SIGKILL");
  for (let starts = 3; starts <= 20; starts += 1) {
    t.mock.timers.tick(30_000);
    assert.equal(started.length, starts);
    if (starts < 20) started.at(-1)?.emit("exit", 1, null);
  }
  waiting?.emit("exit", null, "SIGKILL");
  started.at(-1)?.emit("exit", 1, null);
  assert.equal(await ended, 1);
  t.mock.timers.tick(30_000);
  assert.equal(started.length, 20);
});

test("a signal that comes before a worker listens is heard once, when it does", async (t) => {
  const known = new Map(stopSignals.map((name) => [name, process.listeners(name)]));
  t.after(() => {
    for (const [name, kept] of known)
      for (const listener of process.listeners(name))
        if (!kept.includes(listener)) process.off(name, listener);
  });
  const worker = new FakeWorker(1);
  const here: WorkerHere = Reflect.construct(WorkerHere, [worker]);
  worker.emit("message", { kind: "signal", signal: "SIGTERM" });
  const heard: string[] = [];
  for (let n = 0; n < 2; n += 1) {
    here.signals.on("SIGHUP", () => heard.push("SIGHUP"));
    here.signals.on("SIGTERM", () => heard.push(`SIGTERM ${n}`));
    await nextTurn();
  }
  assert.deepEqual(heard, ["SIGTERM 0"]);
});

test("a worker that started during a reload follows it when it is up", async (t) => {
  const started = fakeWorkers(t);
  const workers = new Workers(config, loggerTo([]), () => {});
  const ended = workers.run();
  started[0]?.up();
  const [first, second] = started;
  const hangUps = (worker?: FakeWorker) =>
    worker?.told.filter((message) => isDeepStrictEqual(message, { kind: "signal", signal: "SIGHUP" })).length;
  /** The limits of the configurations that it was asked to follow. */
  const asked = (worker: FakeWorker) =>
    worker.told.filter(isReload).map(({ argument }) => deserialize(argument).config.limits.messagesMax);
  const reloaded = (messagesMax: number) => {
    const message = { kind: "config", config: { ...config, limits: { ...config.limits, messagesMax } } };
    first?.emit("message", structuredClone(message));
  };
  const startAgain = (meanwhile: (worker: FakeWorker) => void) => {
    started.at(-1)?.emit("exit", null, "SIGKILL");
    t.mock.timers.tick(1000);
    const worker = started.at(-1) ?? assert.fail("it is started again");
    worker.emit("message", { kind: "hello" });
    meanwhile(worker);
    worker.emit("message", { kind: "up", shown: { banner: {}, signInCode: null } });
    return asked(worker);
  };
  // During the start: a signal waits, and counts for all.
  second?.emit("message", { kind: "hello" });
  reloaded(99);
  workers.hangUp();
  second?.emit("message", { kind: "up", shown: { banner: {}, signInCode: null } });
  assert.deepEqual([hangUps(first), hangUps(second)], [1, 0]);
  const behind = () => reloaded(100);
  assert.deepEqual(startAgain(behind), [100]);
  // The workers tell the same configuration one after the other.
  assert.deepEqual(startAgain(behind), []);
  const hasFollowed = (worker: FakeWorker) => {
    reloaded(101);
    const followed = { ...config, limits: { ...config.limits, messagesMax: 101 } };
    worker.emit("message", { kind: "config", config: followed });
  };
  assert.deepEqual(startAgain(hasFollowed), []);
  // One reload for all, which it follows.
  const hangUp = () => {
    reloaded(102);
    workers.hangUp();
  };
  assert.deepEqual(startAgain(hangUp), [102]);
  assert.deepEqual(
    started.map(hangUps),
    started.map((worker) => (worker === first ? 2 : 0)),
  );
  for (const worker of started) worker.emit("exit", 0, null);
  workers.stop("SIGTERM");
  for (const worker of started) worker.emit("exit", 0, null);
  assert.equal(await ended, 0);
});
