#!/usr/bin/env node
/** The entry: hands the process and the composition root to the command line. */
import { enableCompileCache } from "node:module";
import { fileURLToPath } from "node:url";

// Imported after this, the program loads in two thirds of the time. Where the folder cannot be written nothing is kept.
enableCompileCache(fileURLToPath(new URL("../../node_modules/.cache/inkwell", import.meta.url)));
const { services } = await import("./services.ts");
const { run } = await import("./program.ts");

// A reader that has gone (`inkwell key list | head -1`) wants no more output and no complaint.
process.stdout.on("error", (error) => {
  if ("code" in error && error.code === "EPIPE") process.exit(0);
  process.stderr.write(`The result cannot be written to stdout (${error.message}).\n`);
  process.exit(1);
});

// Remarks and the log are worth no answer and no exit code: a service whose log has lost its reader, or stands on a full
// disk, works on, and so does the log once it can be written again. There is nowhere left to tell it.
process.stderr.on("error", () => {});

process.exitCode = await run(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  cwd: process.cwd(),
  services,
});
