/**
 * `npm run build`: compiles src/ to dist/, copies the files that the program reads at run time,
 * bundles the pages of the console and the portal, and makes pages of the documents.
 * Node does not strip types below node_modules, so packages need JavaScript.
 *
 * `npm run check` checks types, and a build does not.
 *
 * Guarantees that dist/ has nothing from an earlier build. A failed build leaves no dist/.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, cpSync, globSync, rmSync } from "node:fs";
import { join } from "node:path";
import { buildWeb } from "../src/app/web-bundle.ts";
import { bundledLibraries } from "./bundled-libraries.ts";
import { buildSite } from "./docs/site.ts";

const root = join(import.meta.dirname, "..");
const dist = join(root, "dist");
const tsc = join(root, "node_modules/typescript/bin/tsc");

rmSync(dist, { recursive: true, force: true });
try {
  execFileSync(process.execPath, [tsc, "--project", join(root, "tsconfig.build.json")], { stdio: "inherit" });
  cpSync(join(root, "src/store/migrations"), join(dist, "store/migrations"), { recursive: true });
  await buildWeb(join(dist, "web"));
  await buildSite(join(dist, "docs-site"));
  for (const name of bundledLibraries) {
    const [license = "LICENSE"] = globSync("LICENSE*", { cwd: join(root, "node_modules", name) });
    cpSync(join(root, "node_modules", name, license), join(dist, "web", `${name}.license`));
  }
  chmodSync(join(dist, "cli/inkwell.js"), 0o755);
} catch (error) {
  rmSync(dist, { recursive: true, force: true });
  throw error;
}
