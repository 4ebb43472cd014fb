/** A model that no plan can ever pay for: the log, /readyz and a reload warn of it. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { newFolder, noDefaultModel, startProgram } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";

test("warns at the start and after a reload, until the configuration is mended", async () => {
  await using folder = await newFolder();
  const write = (credits: number) =>
    writeFile(
      path.join(folder.path, "inkwell.yaml"),
      `plans:
  small: { base: { credits: ${credits}, every: P1D }, overage: { credits: 0, every: P1D } }
models:
  big: { engine: upstream, url: "http://127.0.0.1:1/v1", model: m, price: { prompt: 1000000, completion: 1000000 } }
`,
    );
  await write(30);
  await using service = startProgram(folder.path, { env: noDefaultModel });
  const { operatorUrl } = await service.up();
  assert.match(service.stderr, /"model":"big","smallest":"529","plans":\["small"\]/);
  const isWarned = async (): Promise<boolean> => {
    const { warnings } = JSON.parse(await (await fetch(`${operatorUrl}/readyz`)).text());
    return /The smallest request to big takes 529 credits/.test(warnings.join());
  };
  assert.ok(await isWarned());
  await write(529);
  service.process.kill("SIGHUP");
  await until("the warning is gone", async () => !(await isWarned()));
});
