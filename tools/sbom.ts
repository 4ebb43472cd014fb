/**
 * `npm run sbom`: writes `dist/sbom.cdx.json`, the libraries of the package with their licences
 * (CycloneDX). npm makes the list, and calls the program itself by the name of its folder.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const { name }: { name: string } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const args = ["sbom", "--sbom-format=cyclonedx", "--sbom-type=application", "--package-lock-only"];
const made = execFileSync("npm", [...args, "--omit=dev"], { cwd: root, maxBuffer: 2 ** 26 });
const list: { metadata: { component: { name: string } } } = JSON.parse(String(made));
list.metadata.component.name = name;
mkdirSync(join(root, "dist"), { recursive: true });
writeFileSync(join(root, "dist/sbom.cdx.json"), `${JSON.stringify(list, null, 2)}\n`);
