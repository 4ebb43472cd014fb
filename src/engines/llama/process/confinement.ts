/**
 * What the JavaScript of the engine's process may do, by Node's permission model (Linux).
 *
 * Guarantees that it writes no file, starts no thread, and reads the model, the program, its packages and the system's
 * libraries alone; `confineFurther` takes away processes, addons and what is left of reading once the model is loaded.
 * The model does not bind native code, and has no scope for the network in Node 24. docs/security.md
 */
import { existsSync, realpathSync } from "node:fs";
import { dirname, join, resolve, sep } from "node:path";
import { modelFilesOf } from "../../../model-files/gguf.ts";

/** node-llama-cpp looks for the libraries of GPUs here, and for the kind of system. */
const systemPaths = ["/usr", "/lib", "/lib64", "/etc/os-release"];
const pathVariables = ["LD_LIBRARY_PATH", "CUDA_PATH"];

/** Node's options for the process. None where the confinement is not tested: elsewhere than on Linux. */
export function confiningOptions(
  modelPath: string,
  environment: Readonly<Record<string, string | undefined>>,
): string[] {
  if (process.platform !== "linux") return [];
  const program = resolve(import.meta.dirname, "../../../..");
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
    // The library tests its binaries in a process of their own before it loads them.
    "--allow-child-process",
    "--disable-warning=PERM0001",
    "--disable-warning=PERM0002",
    // No debugger can be attached by a signal.
    "--disable-sigusr1",
    ...new Set(readable.flatMap((path) => [path, real(path)]).map((path) => `--allow-fs-read=${path}`)),
  ];
}

/** Gives up, for the rest of the process's life, what only loading takes. */
export function confineFurther(): void {
  // @types/node does not know it yet.
  const drop: unknown =
    process.permission === undefined ? undefined : Reflect.get(process.permission, "drop");
  if (typeof drop !== "function") return;
  for (const scope of ["child", "addon", "fs.read"]) drop.call(process.permission, scope);
}

/** Where Node looks for packages of the program: in its folder and those above, which may be symbolic links. */
function packageFolders(program: string): string[] {
  const folder = join(program, "node_modules");
  const above = dirname(program);
  return [...(existsSync(folder) ? [folder] : []), ...(above === program ? [] : packageFolders(above))];
}

function real(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    // Not there; what names it says so itself.
    return path;
  }
}
