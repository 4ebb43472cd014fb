/** The version of Inkwell, from package.json. */
import { readFileSync } from "node:fs";

export const { version }: { version: string } = JSON.parse(
  readFileSync(new URL("../package.json", import.meta.url), "utf8"),
);
