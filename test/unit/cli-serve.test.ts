/** `inkwell serve` and the signals that stop it, around a service that does nothing. */
import assert from "node:assert/strict";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { runCli } from "../fixtures/cli-host.ts";

test("a signal that comes as the start ends stops the service that is then up", {
  timeout: 20_000,
}, async () => {
  const cwd = await mkdtemp(path.join(tmpdir(), "inkwell-serve-"));
  let stops = 0;
  const serve = async () => {
    process.emit("SIGTERM", "SIGTERM");
    const { promise: stopped, resolve } = Promise.withResolvers<void>();
    const stop = async () => {
      stops += 1;
      resolve();
    };
    return { stop, stopped };
  };
  const ran = await runCli(["serve"], { cwd, services: { serve } });
  assert.deepEqual([ran.code, stops], [0, 1]);
});
