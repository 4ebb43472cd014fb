/** The server of llama-cpp-python, a compatible server that answers one request at a time. */
import path from "node:path";
import { installPython, llamaBuild, outputOf } from "./run.ts";
import type { RealServer } from "./server.ts";

const sameAnswer = "the first answer to a prompt differs from later ones, for which it is cached";
export const llamaCppPython: RealServer = {
  name: "llama-cpp-python",
  install: (folder) => installPython(folder, ["llama-cpp-python[server]==0.3.36"], llamaBuild),
  async version(folder) {
    const output = await outputOf(path.join(folder, "bin/pip"), ["show", "llama-cpp-python"]);
    return /Version: .*/.exec(output)?.[0] ?? output;
  },
  command(folder, { gguf }, port) {
    const flags = `--host 127.0.0.1 --port ${port} --n_ctx 2048 --n_threads 1 --n_threads_batch 1`;
    return {
      program: path.join(folder, "bin/python"),
      args: ["-m", "llama_cpp.server", "--model", gguf, ...flags.split(" ")],
    };
  },
  model: { model: "any", dialect: "compatible", context_window: 2048, parallel: 1 },
  knownDifferences: {
    "temperature 0 again": sameAnswer,
    "top_k 1": sameAnswer,
    "the begin of a stop sequence at the end": sameAnswer,
    "near the window": "it answers a prompt that is too long with an empty stream",
  },
};
