/**
 * How a person calls this program, so that each printed command works when it is pasted: in a
 * checkout, in a folder with the package, with a global installation, or in the container.
 */
import { existsSync } from "node:fs";
import { dirname, extname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { shellWordOf } from "./shell.ts";

/** The checkout, or the installed package. */
const root = fileURLToPath(new URL("..", import.meta.url));

const folderOfPackages = "node_modules";

/** Returns a command line that calls this program with these arguments. */
export function inkwell(args = ""): string {
  const program = programAt(fileURLToPath(import.meta.url), process.cwd());
  return args === "" ? program : `${program} ${args}`;
}

/** Returns how a person in the folder `cwd` calls the program that `module` is part of. */
export function programAt(module: string, cwd: string): string {
  if (extname(module) === ".ts") {
    const script = shownPath(cwd, join(dirname(dirname(module)), "inkwell"));
    return script === "inkwell" ? "./inkwell" : shellWordOf(script);
  }
  const parts = module.split(sep);
  const at = parts.indexOf(folderOfPackages);
  const folder = parts.slice(0, at).join(sep) || sep;
  // A global installation has no such link. Its link is on the path, as is that of the container.
  const isLocal = at >= 0 && existsSync(join(folder, folderOfPackages, ".bin", "inkwell"));
  if (!isLocal) return "inkwell";
  const isInside = !relative(folder, cwd).startsWith("..");
  return isInside ? "npx inkwell" : `npx --prefix ${shellWordOf(folder)} inkwell`;
}

/** Returns the path of a file of the checkout or package, as it can be opened here. */
export function shipped(file: string): string {
  return shownPath(process.cwd(), join(root, file));
}

/** Returns the path relative to a folder that contains the file. */
export function shownPath(folder: string, file: string): string {
  const path = relative(folder, file);
  return path.startsWith("..") ? file : path;
}
