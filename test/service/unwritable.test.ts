/**
 * Streams that cannot be written: a log with a closed reader or a full disk does not affect
 * answers.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { ask } from "../fixtures/http-stream.ts";
import { inkwell } from "../fixtures/inner-program.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import {
  entry,
  environment,
  freePort,
  mountSmallDisk,
  newFolder,
  startProgram,
} from "../fixtures/program.ts";
import { releaseTest } from "../fixtures/thorough.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { first, text } from "../fixtures/upstream-events.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

const noFullDevice =
  statSync("/dev/full", { throwIfNoEntry: false }) === undefined && "there is no /dev/full";

test("keeps answering, charging and stopping after the reader of the log has closed", async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  configureUpstream(folder.path, upstream);
  await using service = startProgram(folder.path);
  const { url, key } = await service.up();
  assert.ok(key !== null);
  service.process.stderr?.destroy();
  for (let n = 0; n < 3; n += 1) {
    assert.equal((await ask({ url, key, max_tokens: 4 })).status, 200);
  }
  assert.deepEqual(await service.stop(), { code: 0, signal: null });
  assert.equal(query(folder.path, "select count(*) as n from charge")[0]?.n, 3);
  assertSoundLedger(folder.path);
});

test("keeps answering while the log's disk is full, and logs again when there is space", async (t) => {
  await using folder = await newFolder();
  const logs = path.join(folder.path, "logs");
  using disk = mountSmallDisk(t, logs);
  if (disk === null) return;
  const filler = path.join(logs, "filler");
  const log = path.join(logs, "log");
  const stderr = openSync(log, "a");
  assert.throws(() => writeFileSync(filler, Buffer.alloc(1024 * 1024)), /ENOSPC/);
  await using upstream = await startUpstream();
  configureUpstream(folder.path, upstream);
  const child = spawn(process.execPath, [entry, "serve"], {
    cwd: folder.path,
    env: environment(folder.path),
    stdio: ["ignore", "pipe", stderr],
  });
  closeSync(stderr);
  const ended = new Promise((resolve) => child.on("exit", (...how) => resolve(how)));
  try {
    let shown = "";
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      shown += text;
    });
    await until("the service is up, or has ended", () => {
      assert.equal(child.exitCode, null, "it runs on");
      return shown.includes("Ctrl-C stops the service.");
    });
    const [, url = ""] = /API +(\S+)\/v1/.exec(shown) ?? [];
    const key = readFileSync(path.join(folder.path, "data/first-key"), "utf8").trim();
    assert.equal((await ask({ url, key, max_tokens: 4 })).status, 200);
    assert.equal(readFileSync(log, "utf8"), "", "the disk was full until now");
    rmSync(filler);
    assert.equal((await ask({ url, key, max_tokens: 4 })).status, 200);
    await until("the second request stands in the log", () =>
      readFileSync(log, "utf8").includes("/v1/chat/completions 200"),
    );
    child.kill("SIGTERM");
    assert.deepEqual(await ended, [0, null]);
  } finally {
    child.kill("SIGKILL");
    await ended;
  }
  assertSoundLedger(folder.path);
});

releaseTest(
  "keeps the result and exit code of a command whose stderr is closed",
  {
    skip: noFullDevice,
  },
  async () => {
    await using folder = await newFolder();
    const made = await inkwell(folder.path, ["account", "create", "ada", "--plan", "starter"]);
    assert.equal(made.code, 0, made.stderr);
    const full = openSync("/dev/full", "w");
    try {
      const args = ["credits", "add", "ada", "5", "--payment", "p1", "--json"];
      const { status, stdout } = spawnSync(process.execPath, [entry, ...args], {
        cwd: folder.path,
        env: environment(folder.path),
        stdio: ["ignore", "pipe", full],
        encoding: "utf8",
      });
      assert.deepEqual([status, JSON.parse(stdout).account], [0, "ada"]);
    } finally {
      closeSync(full);
    }
  },
);

test("a service whose stdout has no reader runs until it is stopped", async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  configureUpstream(folder.path, upstream);
  await using service = startProgram(folder.path);
  service.process.stdout?.destroy();
  const address = path.join(folder.path, "data", "operator-address");
  await until("it is up, or has ended", () => existsSync(address) || service.process.exitCode !== null);
  const asked = await inkwell(folder.path, ["account", "list"]);
  assert.equal(asked.code, 0, asked.stderr);
  assert.equal(service.process.exitCode, null, "it still runs");
  assert.deepEqual(await service.stop(), { code: 0, signal: null });
  assert.ok(!existsSync(address), "it has ended as it should");
});

test("a command whose stdout has no reader ends with its own exit code", async () => {
  await using folder = await newFolder();
  writeFileSync(path.join(folder.path, "bad.csv"), "account,plan\nada,none\n");
  const made = await inkwell(folder.path, ["account", "create", "bob", "--plan", "starter"]);
  assert.equal(made.code, 0, made.stderr);
  for (const [code, ...args] of [
    [1, "account", "import", "bad.csv", "--json"],
    [1, "account", "show", "nobody", "--json"],
    [0, "account", "list"],
    // It reads no further, so it does not say how much it found.
    [0, "usage", "--json"],
    [0, "usage", "--csv"],
  ] as const) {
    await using ran = startProgram(folder.path, { args });
    ran.process.stdout?.destroy();
    const ended = await ran.ended;
    assert.deepEqual([ended.code, code === 0 && ran.stderr], [code, code === 0 && ""], args.join(" "));
  }
});

test("a conversation ends when nobody reads it any more, and its key with it", async () => {
  await using upstream = await startUpstream(async (call) => {
    await call.send(first, text("Hello"));
    await call.closed;
  });
  await using folder = await newFolder();
  configureUpstream(folder.path, upstream);
  await using service = startProgram(folder.path, { env: { INKWELL_PORT: String(await freePort()) } });
  const { url } = await service.up();
  const env = { ...environment(folder.path), INKWELL_PORT: new URL(url).port };
  const stdio = ["pipe", "pipe", "inherit"] as const;
  const chat = spawn(process.execPath, [entry, "chat"], { cwd: folder.path, env, stdio: [...stdio] });
  chat.stdout?.destroy();
  // Its stdin stays open.
  chat.stdin?.write("Hello\n");
  const [code] = await once(chat, "close");
  assert.equal(code, 1, "the line got no whole answer");
  const [row] = query(folder.path, "select revoked_ms from api_key where name = 'chat'");
  assert.ok(typeof row?.revoked_ms === "number", "its key is revoked");
});

releaseTest(
  "reports a result that cannot be written and exits with 1, but not for a closed reader",
  {
    skip: noFullDevice,
  },
  async () => {
    await using folder = await newFolder();
    const run = (command: string) =>
      spawnSync("sh", ["-c", `"$0" "$1" ${command}`, process.execPath, entry], {
        cwd: folder.path,
        env: environment(folder.path),
        encoding: "utf8",
      });
    const made = await inkwell(folder.path, ["account", "create", "ada", "--plan", "starter"]);
    assert.equal(made.code, 0, made.stderr);
    for (const command of ["account list", "usage --json", "account show nobody --json"]) {
      const refused = run(`${command} > /dev/full`);
      assert.match(refused.stderr, /^The result cannot be written to stdout \(ENOSPC: [^\n]*\n$/);
      assert.equal(refused.status, 1);
    }
    await using service = startProgram(folder.path, { args: ["account", "list"] });
    service.process.stdout?.destroy();
    assert.deepEqual([await service.ended, service.stderr], [{ code: 0, signal: null }, ""]);
  },
);
