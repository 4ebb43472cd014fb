/**
 * `npm run sbom`: writes `dist/sbom.cdx.json`, the libraries of the package with their licences
 * (CycloneDX), also those in its pages. npm makes the list in another folder, without the other
 * libraries for development: `npm sbom --omit dev` leaves out what those need, even if the program
 * needs it too. npm also calls the program by the name of its folder.
 */
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bundledLibraries } from "./bundled-libraries.ts";

const root = join(import.meta.dirname, "..");
const scratch = mkdtempSync(join(tmpdir(), "inkwell-sbom-"));
try {
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const cwd = join(scratch, manifest.name);
  mkdirSync(cwd);
  const { devDependencies, ...others } = manifest;
  for (const name of bundledLibraries) others.dependencies[name] = devDependencies[name];
  writeFileSync(join(cwd, "package.json"), JSON.stringify(others));
  for (const file of ["package-lock.json", ".npmrc"]) copyFileSync(join(root, file), join(cwd, file));
  const npm = (...args: string[]) =>
    execFileSync("npm", [...args, "--package-lock-only", "--offline"], { cwd, maxBuffer: 2 ** 26 });
  npm("install", "--ignore-scripts", "--no-audit", "--no-fund");
  const list = npm("sbom", "--sbom-format=cyclonedx", "--sbom-type=application");
  mkdirSync(join(root, "dist"), { recursive: true });
  writeFileSync(join(root, "dist/sbom.cdx.json"), list);
} finally {
  rmSync(scratch, { recursive: true });
}
