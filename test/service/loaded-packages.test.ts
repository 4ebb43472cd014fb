/** A service on SQLite loads no package that it does not use: each is memory of every process. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { newFolder, startProgram } from "../fixtures/program.ts";

const preload = fileURLToPath(new URL("../fixtures/loaded-packages.ts", import.meta.url));

test("a service on SQLite loads neither the driver of PostgreSQL nor Ajv", async () => {
  await using folder = await newFolder();
  const price = { prompt: 1, completion: 1 };
  const model = { engine: "upstream", url: "http://127.0.0.1:9/v1", model: "none", price };
  // JSON is YAML too.
  writeFileSync(path.join(folder.path, "inkwell.yaml"), JSON.stringify({ models: { none: model } }));
  // The libraries as they are installed, and not the bundles of a test run.
  await using service = startProgram(folder.path, { preload, env: { NODE_OPTIONS: "" } });
  await service.up();
  service.process.send("which?");
  const [packages] = await once(service.process, "message");
  assert.ok(packages.includes("fastify"), packages.join());
  for (const unused of ["pg", "ajv"]) assert.ok(!packages.includes(unused), `${unused} is not loaded`);
});
