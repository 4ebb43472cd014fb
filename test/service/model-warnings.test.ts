/** `inkwell models` shows what a running service found odd about its models, and their state. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { inkwell, startInside } from "../fixtures/inner-program.ts";
import { miniature, newFolder } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";

test("inkwell models shows the warnings of the start, as long as the service runs", async () => {
  await using folder = await newFolder();
  const content = readFileSync(miniature);
  content.write("{%- fox message", content.indexOf("{%- for message"), "latin1");
  writeFileSync(path.join(folder.path, "broken.gguf"), content);
  writeFileSync(
    path.join(folder.path, "inkwell.yaml"),
    "models: { m: { engine: llama, source: broken.gguf, context_window: 256, price: { prompt: 1, completion: 1 } } }",
  );
  const warning = /^m: the model's chat template cannot be used \(.*\); ChatML is used\.$/m;
  const commandEnv: Record<string, string> = {};
  {
    await using service = startInside(folder.path);
    const { operatorUrl } = await service.up();
    commandEnv.INKWELL_OPERATOR_PORT = new URL(operatorUrl).port;
    const ran = await inkwell(folder.path, ["models"], { env: commandEnv });
    assert.equal(ran.code, 0, ran.stderr);
    assert.match(ran.stderr, warning);
    const json = await inkwell(folder.path, ["models", "--json"], { env: commandEnv });
    assert.match(JSON.parse(json.stdout)[0].warnings[0], /chat template cannot be used/);
  }
  const after = await inkwell(folder.path, ["models"], { env: commandEnv });
  assert.equal(after.code, 0, after.stderr);
  assert.doesNotMatch(after.stderr, warning);
});

test("inkwell models shows a server that does not respond, as long as the service runs", async () => {
  await using folder = await newFolder();
  const url = "http://127.0.0.1:9/v1";
  const price = "price: { prompt: 1, completion: 1 }";
  writeFileSync(
    path.join(folder.path, "inkwell.yaml"),
    `models: { far: { engine: upstream, url: "${url}", model: m, context_window: 256, ${price} } }`,
  );
  await using service = startInside(folder.path);
  const { operatorUrl } = await service.up();
  const env = { INKWELL_OPERATOR_PORT: new URL(operatorUrl).port };
  await until("the service has asked the server", async () => {
    const readiness = await (await fetch(`${operatorUrl}/readyz`)).text();
    return readiness.includes('"models":{"far":"unavailable"}');
  });
  const ran = await inkwell(folder.path, ["models"], { env });
  assert.equal(ran.code, 0, ran.stderr);
  assert.match(ran.stdout, /^far +unavailable /m);
  assert.match(ran.stderr, /^far: the server http:\/\/127\.0\.0\.1:9\/v1 is down\.$/m);
  const [json] = JSON.parse((await inkwell(folder.path, ["models", "--json"], { env })).stdout);
  assert.partialDeepStrictEqual(json, { state: "unavailable", warnings: [`the server ${url} is down`] });
});
