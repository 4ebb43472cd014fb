#!/usr/bin/env node
/** The entry: hands the process and the composition root to the command line. */
import { openStore, pullModel, serve, version } from "../main.ts";
import { run } from "./program.ts";

// A reader that has gone (`inkwell key list | head -1`) wants no more output and no complaint.
process.stdout.on("error", (error) => {
  if ("code" in error && error.code === "EPIPE") process.exit(0);
  throw error;
});

process.exitCode = await run(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  cwd: process.cwd(),
  services: { version, openStore, serve, pullModel },
});
