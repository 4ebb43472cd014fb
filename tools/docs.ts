/**
 * `npm run docs [-- FOLDER]`: builds the documents as pages with a search, into dist/docs-site or
 * another folder. The operator listener serves those of dist/docs-site at /docs.
 */
import { rmSync } from "node:fs";
import path from "node:path";
import { buildSite } from "./docs/site.ts";

const own = path.join(import.meta.dirname, "../dist/docs-site");
const folder = process.argv[2] ?? own;
if (folder === own) rmSync(own, { recursive: true, force: true });
await buildSite(folder);
console.log(path.relative(process.cwd(), path.join(folder, "index.html")));
