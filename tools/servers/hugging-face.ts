/** Writes the model in the format of Hugging Face, for servers that read no GGUF. */
import { rename, rm } from "node:fs/promises";
import path from "node:path";
import { outputOf } from "./run.ts";
import type { ModelFiles } from "./server.ts";

const converter = path.join(import.meta.dirname, "convert-gguf.py");

/** `python`: of an environment with transformers, gguf and accelerate. */
export async function convertGguf(python: string, { gguf, folder }: ModelFiles): Promise<void> {
  const part = `${folder}.part`;
  await rm(part, { recursive: true, force: true });
  await outputOf(python, [converter, gguf, part]);
  await rename(part, folder);
}
