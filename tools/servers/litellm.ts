/**
 * LiteLLM's proxy before llama-server. As a program, this file starts both and ends with them:
 * `node litellm.ts FOLDER GGUF PORT`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { freePort } from "../../test/fixtures/program.ts";
import { llamaServer } from "./llama-server.ts";
import { installPython, outputOf } from "./run.ts";
import type { RealServer } from "./server.ts";

/** llama-server has the folder that it has for itself. */
const behindOf = (folder: string) => path.join(folder, "..", llamaServer.name);

export const litellm: RealServer = {
  name: "litellm",
  async install(folder, files) {
    await mkdir(behindOf(folder), { recursive: true });
    await llamaServer.install(behindOf(folder), files);
    await installPython(folder, ["litellm[proxy]==1.108.7"]);
  },
  async version(folder) {
    const output = await outputOf(path.join(folder, "bin/pip"), ["show", "litellm"]);
    return `${/Version: .*/.exec(output)?.[0] ?? output}, before ${await llamaServer.version(behindOf(folder))}`;
  },
  command: (folder, files, port) => ({
    program: process.execPath,
    args: [import.meta.filename, folder, files.gguf, String(port)],
  }),
  model: { model: "smollm2", dialect: "compatible", context_window: 2048, parallel: 4 },
  knownDifferences: {
    "0 alternatives": "llama-server sends no log-probabilities for 0, and this dialect asks for no more",
  },
};

async function serve(folder: string, gguf: string, port: string): Promise<void> {
  const behindPort = await freePort();
  const config = path.join(folder, "config.yaml");
  const parameters = { model: "openai/any", api_base: `http://127.0.0.1:${behindPort}/v1`, api_key: "none" };
  // JSON is YAML.
  await writeFile(
    config,
    JSON.stringify({ model_list: [{ model_name: "smollm2", litellm_params: parameters }] }),
  );
  const behind = llamaServer.command(behindOf(folder), { gguf, folder: "" }, behindPort);
  const proxy = ["--config", config, "--host", "127.0.0.1", "--port", port];
  const children: ChildProcess[] = [
    spawn(behind.program, behind.args, { env: { ...process.env, ...behind.env }, stdio: "inherit" }),
    spawn(path.join(folder, "bin/litellm"), proxy, {
      env: {
        ...process.env,
        LITELLM_LOCAL_MODEL_COST_MAP: "True",
        // Only this machine reaches it. With a key it answers 500 to a request without one.
        LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY: "true",
      },
      stdio: "inherit",
    }),
  ];
  const stop = () => {
    for (const child of children) child.kill("SIGTERM");
  };
  process.on("SIGTERM", stop);
  for (const child of children) child.on("error", stop).on("close", stop);
}

if (import.meta.main) {
  const [folder = "", gguf = "", port = ""] = process.argv.slice(2);
  await serve(folder, gguf, port);
}
