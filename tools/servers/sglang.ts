/**
 * SGLang on a processor. The kernels that its package installs need a GPU. Without them it uses
 * torch's functions, but imports their names.
 */
import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { convertGguf } from "./hugging-face.ts";
import { installPython, outputOf } from "./run.ts";
import type { RealServer } from "./server.ts";

const contextWindow = 2048;
const model = "smollm2";

/** Has every name, and fails only if one is called. */
const kernels = `def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args, **kwargs):
        raise NotImplementedError(name)

    return missing
`;

export const sglang: RealServer = {
  name: "sglang",
  async install(folder, files) {
    await installPython(folder, ["sglang==0.5.23", "accelerate"]);
    const stub = path.join(folder, "stub/sgl_kernel");
    await mkdir(stub, { recursive: true });
    await writeFile(path.join(stub, "__init__.py"), kernels);
    if (!existsSync(files.folder)) await convertGguf(path.join(folder, "bin/python"), files);
  },
  async version(folder) {
    const list = await outputOf(path.join(folder, "bin/pip"), ["show", "sglang"]);
    return /Version: .*/.exec(list)?.[0] ?? list;
  },
  command(folder, files, port) {
    const flags =
      `--host 127.0.0.1 --port ${port} --device cpu --context-length ${contextWindow} --max-total-tokens 32768 ` +
      `--attention-backend torch_native --sampling-backend pytorch --disable-cuda-graph --disable-overlap-schedule ` +
      `--enable-cache-report --served-model-name ${model}`;
    return {
      program: path.join(folder, "bin/python"),
      args: ["-m", "sglang.launch_server", "--model-path", files.folder, ...flags.split(" ")],
      env: {
        HF_HUB_OFFLINE: "1",
        SGLANG_USE_CPU_ENGINE: "1",
        OMP_NUM_THREADS: "2",
        PYTHONPATH: path.join(folder, "stub"),
      },
    };
  },
  model: { model, dialect: "sglang", context_window: contextWindow, parallel: 8 },
  knownDifferences: { "the seed again": "its sampling on processors does not repeat an answer" },
};
