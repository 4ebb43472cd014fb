/** `npm run time-line`: writes docs/time-line.html, after a change of src/ledger too. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { bundlePage, pageFile } from "./time-line/page.ts";

const page = await bundlePage();
writeFileSync(join(import.meta.dirname, "..", pageFile), page);
console.log(`${pageFile}: ${Math.round(page.length / 1000)} kB`);
