/** What is odd about a model file when it is loaded stays visible while the engine runs. */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { pino } from "pino";
import { startEngine } from "../../src/app/models.ts";
import { EngineSlot } from "../../src/chat/engine-slot.ts";
import { modelWarnings } from "../../src/http/admin/model-health.ts";
import { Metrics } from "../../src/telemetry/metrics.ts";
import { load, price } from "../fixtures/configuration.ts";
import { miniaturePath } from "../fixtures/llama-engine.ts";

test("a chat template that cannot be used is a warning of the model, and so is an unchecked file", async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "inkwell-start-warnings-"));
  const file = path.join(folder, "tiny-089f4e2d.gguf");
  const content = await readFile(miniaturePath);
  content.write("{%- fox message", content.indexOf("{%- for message"), "latin1");
  await writeFile(file, content);
  // A file of an address, as if it had been downloaded before.
  await writeFile(`${file}.unchecked`, "");
  const source = "https://models.example/tiny.gguf";
  const config = load(
    `models_dir: ${folder}\nmodels: { tiny: { engine: llama, source: "${source}", context_window: 256, ${price} } }`,
  );
  const [model] = config.models;
  assert.ok(model !== undefined);
  const { engine } = await startEngine(model, {
    config,
    queueMax: () => 1,
    stderr: { write: () => {} },
    logger: pino({ enabled: false }),
    metrics: new Metrics(),
    orMiniature: false,
    probeEveryMs: 15_000,
    signal: new AbortController().signal,
  });
  try {
    const slot = new EngineSlot(256);
    await slot.fill(engine);
    const shown = { id: "tiny", engine: slot, price: model.price, outputTokensMax: null, created: 0 };
    const [unchecked = "", template = "", ...others] = modelWarnings([shown]);
    assert.match(unchecked, /^The model "tiny": the source of tiny-089f4e2d\.gguf named no SHA-256.*\.$/);
    assert.match(
      template,
      /^The model "tiny": the model's chat template cannot be used \(.*\); ChatML is used\.$/,
    );
    assert.deepEqual(others, []);
    assert.ok(!unchecked.includes(folder));
  } finally {
    await engine.close();
    await rm(folder, { recursive: true });
  }
});
