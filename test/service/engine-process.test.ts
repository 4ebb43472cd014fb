/**
 * Environment, command line and open files of the engine's process, read from /proc while the
 * program runs.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import {
  environment,
  type Folder,
  miniature,
  newFolder,
  type Program,
  startProgram,
} from "../fixtures/program.ts";

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
  GGML_BACKEND_PATH: "/nowhere",
};

function environmentOf(pid: number): Record<string, string> {
  const entries = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0");
  return Object.fromEntries(
    entries.filter((entry) => entry !== "").map((entry) => [entry.split("=")[0], entry]),
  );
}

describe("the engine's process", { skip }, () => {
  let folder: Folder;
  let service: Program;

  /** Started with secrets and loader variables in its environment. */
  before(async () => {
    folder = await newFolder();
    const model = `{ engine: llama, source: ${miniature}, context_window: 1024, threads: 1, gpu: off, price: { prompt: 1, completion: 1 }`;
    writeFileSync(
      path.join(folder.path, "inkwell.yaml"),
      `models:\n  plain: ${model} }\n  naming: ${model}, environment: [LD_LIBRARY_PATH] }\n`,
    );
    const { NODE_OPTIONS = "" } = environment(folder.path);
    const options = { NODE_OPTIONS: `${NODE_OPTIONS} --no-deprecation` };
    const env = {
      ...secrets,
      ...loaders,
      ...options,
      CUDA_VISIBLE_DEVICES: "",
      LANG: "C.UTF-8",
    };
    service = startProgram(folder.path, { env });
    await service.up();
  });

  after(async () => {
    await service[Symbol.asyncDispose]();
    await folder[Symbol.asyncDispose]();
  });

  /** Process id of the engine that runs a model. */
  function engineOf(model: string): number {
    const [, pid] = new RegExp(`"model":"${model}".*"engine":(\\d+)`).exec(service.stderr) ?? [];
    assert.ok(pid !== undefined, "the log names the engine's process");
    return Number(pid);
  }

  test("gives the engine's process no secrets and no loader variables", () => {
    const pid = engineOf("plain");
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

  test("passes a variable that the model's environment names", () => {
    const environment = environmentOf(engineOf("naming"));
    assert.equal(environment.LD_LIBRARY_PATH, "LD_LIBRARY_PATH=/nowhere");
    assert.equal(environment.GGML_BACKEND_PATH, undefined);
  });

  test("keeps network sockets and files of the data folder out of the engine's process", () => {
    const pid = engineOf("plain");
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
});
