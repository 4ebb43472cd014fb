/** Permissions of the real child process's JavaScript, during and after loading. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm, symlink } from "node:fs/promises";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { confiningOptions } from "../../src/engines/llama/process/confinement.ts";
import { ask, miniaturePath, RecordedLog, startMiniature } from "../fixtures/llama-engine.ts";
import { until } from "../fixtures/until.ts";

const skip = process.platform === "linux" ? false : "the process is confined on Linux only";
const nosy = fileURLToPath(new URL("../fixtures/nosy-child.ts", import.meta.url));

test("the process reads only the model and the program, never writes or connects, and starts nothing after loading", {
  skip,
}, async (t) => {
  const log = new RecordedLog();
  const folder = await mkdtemp(join(tmpdir(), "inkwell-confinement-"));
  t.after(() => rm(folder, { recursive: true }));
  const socketPath = join(folder, "listener");
  const connections: Socket[] = [];
  const listeners = [createServer(), createServer()] as const;
  for (const listener of listeners) {
    listener.on("connection", (socket) => connections.push(socket.end()));
    t.after(() => listener.close());
  }
  const [tcp, local] = listeners;
  await Promise.all([
    once(tcp.listen(0, "127.0.0.1"), "listening"),
    once(local.listen(socketPath), "listening"),
  ]);
  const address = tcp.address();
  assert.ok(address !== null && typeof address === "object");
  const environment = {
    ...process.env,
    NODE_OPTIONS: `--import=${nosy} --allow-fs-read=${dirname(nosy)}`,
    NOSY_PORT: String(address.port),
    NOSY_SOCKET: socketPath,
  };
  const engine = await startMiniature({ environment, log });
  t.after(() => engine.close());
  const { pid } = engine;
  assert.ok(pid !== undefined);
  const reports = () =>
    log.lines.flatMap((line) =>
      line.startsWith('info {"read') ? [/\{"read.*?\}/.exec(line)?.[0] ?? ""] : [],
    );
  // The process that tests the library's binaries has the same options, and may report first.
  await until("the process has started", () => reports().length > 0);
  const loading = JSON.parse(reports()[0] ?? "");
  assert.deepEqual(loading, {
    readModel: true,
    readParent: false,
    readPasswords: false,
    readFixture: true,
    write: false,
    spawn: true,
    thread: false,
    connect: false,
    connectToSocket: false,
    sendDatagram: false,
    listen: false,
    lookUp: false,
    request: false,
  });
  const before = reports().length;
  process.kill(pid, "SIGUSR2");
  await until("the process has reported", () => reports().length > before);
  assert.deepEqual(new Set(Object.values(JSON.parse(reports().at(-1) ?? ""))), new Set([false]));
  assert.equal((await ask(engine, "Hi", { maxTokens: 3 })).usage.completionTokens, 3);
  assert.equal(connections.length, 0);
});

test("loads a model behind a symbolic link", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "inkwell-confinement-"));
  t.after(() => rm(folder, { recursive: true }));
  const modelPath = join(folder, "link.gguf");
  await symlink(miniaturePath, modelPath);
  const engine = await startMiniature({ modelPath });
  await engine.close();
});

test("allows reading all parts of a model and the folders of LD_LIBRARY_PATH", {
  skip,
}, () => {
  const options = confiningOptions("/models/a-00001-of-00002.gguf", {
    LD_LIBRARY_PATH: "/opt/cuda/lib:relative::/opt/more",
    OTHER: "/secret",
  });
  for (const path of [
    "/models/a-00001-of-00002.gguf",
    "/models/a-00002-of-00002.gguf",
    "/opt/cuda/lib",
    "/opt/more",
  ]) {
    assert.ok(options.includes(`--allow-fs-read=${path}`), path);
  }
  const checkout = join(import.meta.dirname, "../..");
  for (const path of ["", "/", "/models", "relative", "/secret", "/etc", "/proc", checkout])
    assert.ok(!options.includes(`--allow-fs-read=${path}`), path);
  assert.ok(!options.some((option) => /allow-(fs-write|worker|wasi|inspector|net|ffi)/.test(option)));
});
