#!/usr/bin/env node
/**
 * The entry point: runs the command line with the streams of the process and the composition root.
 */
import { fileURLToPath } from "node:url";
import { keepNewObjectsYoung, returnMemoryOfStart } from "../heap.ts";
import { nodeTooOld } from "./node-version.ts";
import { signalExitCodes } from "./signals.ts";

const tooOld = nodeTooOld(process.versions.node, process.execPath, fileURLToPath(import.meta.url));
if (tooOld !== null) {
  process.stderr.write(tooOld);
  process.exit(1);
}

// The system drops signals to the first process of a container, unless somebody listens. A command
// that listens too does what it wants.
if (process.pid === 1) {
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (process.listenerCount(signal) === 1) process.exit(signalExitCodes[signal]);
    });
  }
}

// Half of these threads look up host names, and one waits for 10 s and more if the name server is
// silent. With the four of Node, two such names would keep every other one waiting.
process.env.UV_THREADPOOL_SIZE ??= "64";
// Before the compile cache, which is valid for one set of flags.
keepNewObjectsYoung();
// Old versions of Node do not have this function, so it is not imported above.
const { enableCompileCache } = await import("node:module");
// The modules imported below then load in two thirds of the time. If the folder cannot be written,
// nothing is cached.
enableCompileCache(fileURLToPath(new URL("../../node_modules/.cache/inkwell", import.meta.url)));
const { services } = await import("./services.ts");
const { run } = await import("./program.ts");

// A reader that has closed the pipe (`inkwell key list | head -1`) or the terminal expects no
// error. The command goes on to its end, because only that knows its exit code.
let isReported = false;
process.stdout.on("error", (error) => {
  if (isReported || process.stdout.isTTY || ("code" in error && error.code === "EPIPE")) return;
  isReported = true;
  process.stderr.write(`The result cannot be written to stdout (${error.message}).\n`);
  process.exitCode = 1;
});

// Remarks and the log do not decide the exit code. A service continues if its log has no reader or
// its disk is full, and logs again once that is possible. The error cannot be reported, because
// stderr is the stream that failed.
process.stderr.on("error", () => {});

const code = await run(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  cwd: process.cwd(),
  services: {
    ...services,
    async startService(...given) {
      const service = await services.startService(...given);
      returnMemoryOfStart();
      return service;
    },
  },
});
process.exitCode ||= code;
