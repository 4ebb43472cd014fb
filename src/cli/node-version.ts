/**
 * Reports a Node that is too old for Inkwell. The entry point imports this file before all others.
 *
 * Guarantees that old versions of Node can load it: it uses no newer syntax or function.
 */
import { createRequire } from "node:module";

/** Oldest major version that runs Inkwell, as in `engines` of package.json. */
const nodeMajorMin = 26;

/**
 * Returns the error message for this version of Node, or null if it is new enough. `program` is
 * the file of the entry point.
 */
export function nodeTooOld(version: string, node: string, program: string): string | null {
  if (Number(version.split(".")[0]) >= nodeMajorMin) return null;
  const installed = installedNode(program);
  const remedy =
    installed === null
      ? `Install Node ${nodeMajorMin}, and start Inkwell with it. Or let npm install it: npm 12 does so after "npm install-scripts approve --no-allow-scripts-pin node node-llama-cpp && npm rebuild".`
      : `Start it with "npx inkwell" in the folder in which it is installed, or with the Node that was installed with it:\n  ${installed} ${program}`;
  return `Inkwell needs Node ${nodeMajorMin} or newer, and ${node} is Node ${version}. ${remedy}\n`;
}

/** Returns the program of the npm package `node`, or null if it is not installed. */
function installedNode(program: string): string | null {
  try {
    return createRequire(program).resolve("node/bin/node");
  } catch {
    return null;
  }
}
