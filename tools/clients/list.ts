/** The clients of `npm run clients`, in pinned versions, and how each is installed. */
import { existsSync } from "node:fs";
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { installPython, outputOf } from "../servers/run.ts";

export interface Client {
  name: string;
  version: string;
  /** Files of this folder, the program first. */
  files: readonly string[];
  /** Installs into a folder that has the files. Throws with the reason if that fails here. */
  install(folder: string): Promise<void>;
  /** Program and arguments. Jobs come on standard input. */
  command(folder: string): string[];
  /** Things that the client does not have, each with the reason. */
  missing?: Readonly<Record<string, string>>;
}

function python(name: string, version: string, file: string, others: readonly string[] = []): Client {
  return {
    name: `${name}-python`,
    version,
    files: [`${file}.py`, "harness.py"],
    install: (folder) => installPython(path.join(folder, "venv"), [`${name}==${version}`, ...others]),
    command: (folder) => [path.join(folder, "venv/bin/python"), path.join(folder, `${file}.py`)],
  };
}

function node(name: string, file: string, packages: readonly string[]): Client {
  return {
    name,
    version: packages[0]?.split("@").at(-1) ?? "",
    files: [`${file}.mjs`, "harness.mjs"],
    install: async (folder) => {
      await writeFile(path.join(folder, "package.json"), "{}");
      await outputOf("npm", ["install", "--prefix", folder, "--no-audit", "--no-fund", ...packages]);
    },
    command: (folder) => [process.execPath, path.join(folder, `${file}.mjs`)],
  };
}

export const clients: readonly Client[] = [
  python("openai", "3.57.0", "openai_python"),
  node("openai-node", "openai-node", ["openai@7.59.0"]),
];

/** Installs a client once, and copies its program. Returns its folder. */
export async function prepare(client: Client, cache: string): Promise<string> {
  const folder = path.join(cache, `${client.name}-${client.version}`);
  await mkdir(folder, { recursive: true });
  for (const file of client.files) {
    const source = path.join(import.meta.dirname, file);
    await copyFile(source, path.join(folder, path.basename(file)));
  }
  // An installation that was interrupted has no mark, and begins again.
  const mark = path.join(folder, "installed");
  if (!existsSync(mark)) {
    await client.install(folder);
    await writeFile(mark, client.version);
  }
  return folder;
}
