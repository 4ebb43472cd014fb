/**
 * Environment, command line and open files of the engine's process, read from /proc while the
 * program runs.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { newFolder, type Program, startProgram } from "../fixtures/program.ts";

const skip = process.platform === "linux" ? false : "only Linux has /proc";

const secrets = {
  INKWELL_OPERATOR_TOKEN: "token-of-the-operator",
  HF_TOKEN: "token-of-the-hub",
  BIG_KEY: "key-of-an-upstream",
  DB_PASSWORD: "password-of-the-database",
};
const loaders = {
  // A folder without libraries: the service itself must start with it.
  LD_LIBRARY_PATH: "/nowhere",
  NODE_OPTIONS: "--no-deprecation",
  GGML_BACKEND_PATH: "/nowhere",
};

function environmentOf(pid: number): Record<string, string> {
  const entries = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0");
  return Object.fromEntries(
    entries.filter((entry) => entry !== "").map((entry) => [entry.split("=")[0], entry]),
  );
}

/** Started with secrets and loader variables in its environment. */
async function started(t: TestContext, env: Record<string, string> = {}): Promise<Program> {
  const folder = await newFolder();
  t.after(() => folder[Symbol.asyncDispose]());
  const service = startProgram(folder.path, {
    env: { ...secrets, ...loaders, CUDA_VISIBLE_DEVICES: "", LANG: "C.UTF-8", ...env },
  });
  t.after(() => service[Symbol.asyncDispose]());
  await service.up();
  return service;
}

test("gives the engine's process no secrets and no loader variables", {
  skip,
}, async (t) => {
  const service = await started(t);
  const pid = service.enginePid();
  assert.deepEqual(Object.keys(environmentOf(pid)).toSorted(), [
    "CUDA_VISIBLE_DEVICES",
    "HOME",
    "LANG",
    "NODE_CHANNEL_FD",
    "NODE_CHANNEL_SERIALIZATION_MODE",
    "UV_THREADPOOL_SIZE",
  ]);
  const seen = readFileSync(`/proc/${pid}/environ`, "utf8") + readFileSync(`/proc/${pid}/cmdline`, "utf8");
  for (const secret of Object.values(secrets)) assert.ok(!seen.includes(secret), secret);
});

test("passes a variable that the model's environment names", { skip }, async (t) => {
  const service = await started(t, {
    INKWELL_MODELS__SMOLLM2_135M_INSTRUCT__ENVIRONMENT: "LD_LIBRARY_PATH",
  });
  const environment = environmentOf(service.enginePid());
  assert.equal(environment.LD_LIBRARY_PATH, "LD_LIBRARY_PATH=/nowhere");
  assert.equal(environment.GGML_BACKEND_PATH, undefined);
});

test("keeps network sockets and files of the data folder out of the engine's process", {
  skip,
}, async (t) => {
  const service = await started(t);
  const pid = service.enginePid();
  const targets = readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)];
    } catch {
      // Closed meanwhile.
      return [];
    }
  });
  assert.ok(
    targets.some((target) => target.startsWith("socket:")),
    "its channel to the service is there",
  );
  const network = ["tcp", "tcp6", "udp", "udp6"]
    .map((name) => readFileSync(`/proc/${pid}/net/${name}`, "utf8"))
    .join("");
  for (const target of targets) {
    const inode = /^socket:\[(\d+)\]$/.exec(target)?.[1];
    if (inode === undefined) assert.doesNotMatch(target, /\.db|\.lock|operator-token/);
    else assert.doesNotMatch(network, new RegExp(` ${inode} `), "no connection and no listener");
  }
});
