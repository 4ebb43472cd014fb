/**
 * `npm run build`: compiles src/ to dist/, copies the files that the program reads at run time,
 * and bundles the pages of the console.
 * Node does not strip types below node_modules, so packages need JavaScript.
 *
 * Guarantees that dist/ has nothing from an earlier build. A failed build leaves no dist/.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, cpSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { bundleConsole } from "../src/app/console-bundle.ts";

const root = join(import.meta.dirname, "..");
const dist = join(root, "dist");
const tsc = join(root, "node_modules/typescript/bin/tsc");

rmSync(dist, { recursive: true, force: true });
try {
  execFileSync(process.execPath, [tsc, "--project", join(root, "tsconfig.build.json")], { stdio: "inherit" });
  cpSync(join(root, "src/store/migrations"), join(dist, "store/migrations"), { recursive: true });
  mkdirSync(join(dist, "console/assets"), { recursive: true });
  for (const { name, content } of await bundleConsole()) {
    writeFileSync(join(dist, "console", name === "index.html" ? name : `assets/${name}`), content);
  }
  chmodSync(join(dist, "cli/inkwell.js"), 0o755);
} catch (error) {
  rmSync(dist, { recursive: true, force: true });
  throw error;
}
