/**
 * SIGHUP ends a command, but never a service (stopping.test.ts). A service survives the end of its
 * terminal.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { test } from "node:test";
import { isRunning, processEnded } from "../fixtures/processes.ts";
import { entry, environment, freePort, newFolder } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

const skip = process.platform === "win32" ? "Windows has no signals" : false;

test("SIGHUP: ends a conversation", { skip }, async () => {
  await using folder = await newFolder();
  const silent = createServer().listen(0, "127.0.0.1");
  await once(silent, "listening");
  const address = silent.address();
  assert.ok(address !== null && typeof address !== "string");
  const args = [entry, "chat", "--url", `http://127.0.0.1:${address.port}`, "--key", "ink_none"];
  const chat = spawn(process.execPath, args, {
    cwd: folder.path,
    env: environment(folder.path),
    stdio: ["pipe", "ignore", "inherit"],
  });
  try {
    chat.stdin.end("What is ink?");
    await once(silent, "request");
    chat.kill("SIGHUP");
    assert.deepEqual(await once(chat, "exit"), [1, null]);
  } finally {
    chat.kill("SIGKILL");
    silent.close();
    silent.closeAllConnections();
  }
});

const hasScript = spawnSync("script", ["--version"]).stdout?.includes("util-linux") ?? false;

test("keeps running when its terminal closes", {
  skip: hasScript ? skip : "there is no util-linux script here",
}, async () => {
  await using folder = await newFolder();
  const ports = { INKWELL_PORT: `${await freePort()}`, INKWELL_OPERATOR_PORT: `${await freePort()}` };
  const pidFile = path.join(folder.path, "pid");
  await using upstream = await startUpstream();
  configureUpstream(folder.path, upstream);
  const command = `echo $$ > '${pidFile}'; exec '${process.execPath}' '${entry}' serve`;
  const terminal = spawn("script", ["-qefc", command, "/dev/null"], {
    cwd: folder.path,
    env: { ...environment(folder.path), ...ports, TERM: "xterm" },
    stdio: ["pipe", "pipe", "inherit"],
  });
  const isReady = async () => {
    const answer = await fetch(`http://127.0.0.1:${ports.INKWELL_OPERATOR_PORT}/readyz`).catch(() => null);
    await answer?.text();
    return answer?.status === 200;
  };
  try {
    let shown = "";
    terminal.stdout.setEncoding("utf8").on("data", (text: string) => {
      shown += text;
    });
    // Ready comes first: without a terminal to show the key to, a start fails.
    await until("the service is up", () => shown.includes("Ctrl-C stops the service."));
    terminal.kill("SIGKILL");
    await once(terminal, "close");
    const pid = Number(readFileSync(pidFile, "utf8"));
    // Its log has nowhere to go any more; each of these writes a line.
    for (let request = 0; request < 3; request++) {
      const answer = await fetch(`http://127.0.0.1:${ports.INKWELL_PORT}/v1/models`);
      assert.equal(answer.status, 401);
    }
    assert.ok(isRunning(pid) && (await isReady()));
    process.kill(pid, "SIGTERM");
    await processEnded(pid);
  } finally {
    if (existsSync(pidFile)) {
      const pid = Number(readFileSync(pidFile, "utf8"));
      if (isRunning(pid)) process.kill(pid, "SIGKILL");
    }
  }
});
