/** The first process of a service with workers: when it starts one again, and when it gives up. */
import assert from "node:assert/strict";
import cluster from "node:cluster";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { Workers } from "../../src/app/workers.ts";
import { load } from "../fixtures/configuration.ts";
import { loggerTo } from "../fixtures/service.ts";

const config = load(`database: postgres://u@db.example/inkwell
workers: 2
models:
  big: { engine: upstream, url: "http://a:1/v1", model: m, price: { prompt: 1, completion: 2 } }
`);

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

  send(): void {}

  up(): void {
    this.emit("message", { kind: "hello" });
    this.emit("message", { kind: "up", shown: { banner: {}, signInCode: null } });
  }
}

test("a worker that cannot start is tried for as long as another one is up", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const started: FakeWorker[] = [];
  t.mock.method(cluster, "setupPrimary", () => {});
  t.mock.method(cluster, "fork", () => {
    const worker = new FakeWorker(started.length + 1);
    started.push(worker);
    return worker;
  });
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
