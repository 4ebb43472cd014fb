/**
 * SIGHUP never ends a running service: it reloads the configuration (reload.test.ts), also after
 * its start, and does nothing during the stop. A service survives the end of its terminal.
 */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { test } from "node:test";
import { openStream } from "../fixtures/http-stream.ts";
import { isRunning, processEnded } from "../fixtures/processes.ts";
import { entry, environment, freePort, newFolder, type Program, startProgram } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { upstreamModel } from "../fixtures/upstream-program.ts";

const skip = process.platform === "win32" ? "Windows has no signals" : false;

/** The most log-probabilities make it slow. */
const long = { content: "An endless story, please.", logprobs: true, top_logprobs: 20, max_tokens: 1000 };

/** How often the configuration has been reloaded. */
function reloads({ stderr }: Program): number {
  return stderr.match(/"msg":"the configuration is reloaded; nothing has changed"/g)?.length ?? 0;
}

test("SIGHUP: reloads the configuration after the start and at each signal, and changes nothing during the stop", {
  skip,
}, async () => {
  await using folder = await newFolder();
  await using service = startProgram(folder.path);
  await service.shows("Inkwell ");
  service.process.kill("SIGHUP");
  await service.shows("SIGHUP arrived during the start");
  const { url, key } = await service.up();
  assert.ok(key !== null);
  await until("it is reloaded", () => reloads(service) === 1);
  const stream = await openStream({ url, key, ...long });
  const engine = service.enginePid();
  // A terminal sends the signal to the engine too.
  process.kill(engine, "SIGHUP");
  process.kill(engine, "SIGSTOP");
  service.process.kill("SIGHUP");
  await until("it is reloaded again", () => reloads(service) === 2);
  assert.equal(service.enginePid(), engine, "the engine was not started again");
  service.process.kill("SIGTERM");
  await service.shows("Stopping: running answers may finish.");
  service.process.kill("SIGHUP");
  await service.shows("the configuration was not reloaded on SIGHUP");
  process.kill(engine, "SIGCONT");
  assert.equal(
    (await stream.rest()).at(-1),
    "[DONE]",
    "SIGHUP is not the second signal, which stops at once",
  );
  assert.deepEqual(await service.ended, { code: 0, signal: null });
});

test("SIGHUP: ends other commands", { skip }, async () => {
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
    assert.deepEqual(await once(chat, "exit"), [null, "SIGHUP"]);
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
  const model = upstreamModel(folder.path, upstream);
  const command = `echo $$ > '${pidFile}'; exec '${process.execPath}' '${entry}' serve`;
  const terminal = spawn("script", ["-qefc", command, "/dev/null"], {
    cwd: folder.path,
    env: { ...environment(folder.path), ...model, ...ports, TERM: "xterm" },
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
