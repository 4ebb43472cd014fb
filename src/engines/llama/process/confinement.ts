/**
 * Node's permission model for the JavaScript of the engine's process (Linux). docs/security.md
 * describes the whole.
 *
 * Guarantees: the process writes no file, starts no thread and uses no network. It reads only the
 * model, the program, its packages and the system's libraries. After loading, child.ts also drops
 * processes, addons and the remaining read access. Native code is not confined.
 */
import { existsSync, realpathSync } from "node:fs";
import { dirname, join, resolve, sep } from "node:path";
import { modelFilesOf } from "../../../model-files/gguf.ts";

/** node-llama-cpp looks here for GPU libraries and for the distribution. */
const systemPaths = ["/usr", "/lib", "/lib64", "/etc/os-release"];
const pathVariables = ["LD_LIBRARY_PATH", "CUDA_PATH"];

/** Returns Node's options for the process. Other systems than Linux are not confined. */
export function confiningOptions(
  modelPath: string,
  environment: Readonly<Record<string, string | undefined>>,
): string[] {
  if (process.platform !== "linux") return [];
  const program = resolve(import.meta.dirname, "../../..");
  const readable = [
    program,
    join(program, "..", "package.json"),
    ...packageFolders(program),
    ...modelFilesOf(modelPath),
    ...systemPaths,
    ...pathVariables.flatMap((name) => environment[name]?.split(":") ?? []),
  ].filter((path) => path.startsWith(sep));
  return [
    "--permission",
    "--allow-addons",
    // The library tests its binaries in a separate process before it loads them.
    "--allow-child-process",
    "--disable-warning=PERM0001",
    "--disable-warning=PERM0002",
    // A signal cannot attach a debugger.
    "--disable-sigusr1",
    ...new Set(readable.flatMap((path) => [path, real(path)]).map((path) => `--allow-fs-read=${path}`)),
  ];
}

/** Returns the folders with the program's packages: its own and those above. */
function packageFolders(program: string): string[] {
  const folder = join(program, "node_modules");
  const above = dirname(program);
  return [...(existsSync(folder) ? [folder] : []), ...(above === program ? [] : packageFolders(above))];
}

function real(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    // Does not exist. The code that opens it reports that.
    return path;
  }
}
