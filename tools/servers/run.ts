/** Runs the programs that install model servers. */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import path from "node:path";

/** Returns the output of a program. Throws with its end if the program fails. */
export async function outputOf(
  program: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  const child = spawn(program, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on("error", reject).on("close", resolve);
  });
  if (code !== 0) throw new Error(`${path.basename(program)} ended with ${code}: ${output.slice(-2000)}`);
  return output;
}

/** Installs packages of the Python package index into an environment of their own, once. */
export async function installPython(
  folder: string,
  packages: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  // An installation that was interrupted has no mark, and begins again.
  const mark = path.join(folder, "installed");
  if (existsSync(mark)) return;
  await outputOf("python3", ["-m", "venv", "--clear", folder]);
  await outputOf(path.join(folder, "bin/pip"), ["install", "--quiet", ...packages], env);
  await writeFile(mark, packages.join("\n"));
}

/** Options of a build of llama.cpp that runs on every processor of the last ten years. */
export const llamaBuild: Readonly<Record<string, string>> = {
  CMAKE_ARGS: [
    "-DCMAKE_BUILD_TYPE=Release",
    ...["AVX", "AVX2", "FMA", "F16C", "BMI2"].map((name) => `-DGGML_${name}=ON`),
    ...["NATIVE", "AMX_TILE", "AMX_INT8", "AMX_BF16"].map((name) => `-DGGML_${name}=OFF`),
    ...["BUILD_TESTS", "BUILD_EXAMPLES", "CURL", "OPENSSL"].map((name) => `-DLLAMA_${name}=OFF`),
  ].join(" "),
  CMAKE_BUILD_PARALLEL_LEVEL: "2",
  LLAMA_CPP_BUILD_JOBS: "2",
};
