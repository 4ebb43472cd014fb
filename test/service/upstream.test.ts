/**
 * The program with only an upstream model: nothing to download, no engine process, ready at once.
 */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { ask } from "../fixtures/http-stream.ts";
import { inkwell, startInside } from "../fixtures/inner-program.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { freePort, newFolder } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";
import { secretKey, startUpstream } from "../fixtures/upstream.ts";

test("starts, answers and charges before an upstream, and reports its absence", async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  await writeFile(
    path.join(folder.path, "inkwell.yaml"),
    `models:
  big:
    engine: upstream
    url: ${upstream.url}
    key: \${BIG_KEY}
    model: vendor/big
    max_output_tokens: 1500
    defaults: { temperature: 0.5, max_tokens: 2000 }
    price: { prompt: 10, completion: 30 }
`,
  );
  const env = { BIG_KEY: secretKey };
  await using program = startInside(folder.path, { env });
  const { url, operatorUrl, key } = await program.up();
  assert.ok(key !== null);
  assert.match(program.stdout, /Models +big\n/);
  const ready = await fetch(`${operatorUrl}/readyz`);
  assert.deepEqual([ready.status, JSON.parse(await ready.text()).models], [200, { big: "ready" }]);
  assert.equal(upstream.calls.length, 0, "health is not asked of it with a chat, for tokens cost money");

  const answer = await ask({ url, key, model: "big" });
  const { choices } = JSON.parse(await answer.text());
  assert.equal(choices[0].message.content, "Hello world");
  assert.equal(upstream.last().headers.authorization, `Bearer ${secretKey}`);
  assert.equal(
    upstream.last().body.max_tokens,
    1500,
    "a hosted model refuses to be asked for its whole window",
  );
  assert.equal(upstream.last().body.temperature, 0.5, "a default of the model is sent to its server");
  await ask({ url, key, model: "big", temperature: 1, max_tokens: 7 });
  const { temperature, max_tokens } = upstream.last().body;
  assert.deepEqual([temperature, max_tokens], [1, 7], "values of the request win");
  const models = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  const [big] = JSON.parse(await models.text()).data;
  assert.deepEqual([big.context_window, big.max_output_tokens], [8192, 1500]);
  const [row] = query(folder.path, "select prompt_tokens, completion_tokens, cost from charge limit 1");
  assert.deepEqual({ ...row }, { prompt_tokens: 5, completion_tokens: 2, cost: 110 });

  await upstream.stop();
  for (let n = 0; n < 5; n += 1) assert.equal((await ask({ url, key, model: "big" })).status, 503);
  const away = await fetch(`${operatorUrl}/readyz`);
  const { models: states, warnings } = JSON.parse(await away.text());
  assert.deepEqual([away.status, states], [200, { big: "unavailable" }], "other nodes are no better");
  assert.deepEqual(warnings, ['The model "big" is unavailable: none of its servers works.']);
  await program.stop();
  assertSoundLedger(folder.path);
  assert.ok(!(program.stdout + program.stderr).includes(secretKey), "the key is nowhere in the output");
});

test("reports an upstream that is away from the start, and does not wait for it", async () => {
  await using folder = await newFolder();
  const port = await freePort();
  const models = (name: string) =>
    `models: { big: { engine: upstream, url: "http://127.0.0.1:${port}/v1", model: ${name}, price: { prompt: 1, completion: 2 } } }\n`;
  const file = path.join(folder.path, "inkwell.yaml");
  await writeFile(file, models("one"));
  await using program = startInside(folder.path);
  const { url, operatorUrl, key } = await program.up();
  assert.ok(key !== null);
  const states = async () => {
    const ready = await fetch(`${operatorUrl}/readyz`);
    assert.equal(ready.status, 200);
    return JSON.parse(await ready.text()).models;
  };
  await until("its absence is known", async () => (await states()).big === "unavailable");
  const answer = await ask({ url, key, model: "big" });
  const { error } = JSON.parse(await answer.text());
  assert.deepEqual([answer.status, error.code], [503, "model_unavailable"]);
  assert.deepEqual(await states(), { big: "unavailable" });

  // A reload probes the servers of a model that it changes.
  await using upstream = await startUpstream(undefined, port);
  const token = (await readFile(path.join(folder.path, "data", "operator-token"), "utf8")).trim();
  await writeFile(file, models("two"));
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const reloaded = await fetch(`${operatorUrl}/admin/reload`, { method: "POST", headers });
  assert.equal(reloaded.status, 200, await reloaded.text());
  await until("the probe of the new engine", () => upstream.asked.length > 0);
  assert.deepEqual(await states(), { big: "ready" });
  await upstream.stop();
  await program.stop();
});

test("lists an upstream model without its key, and has nothing to download", async () => {
  await using folder = await newFolder();
  await writeFile(
    path.join(folder.path, "inkwell.yaml"),
    `models: { big: { engine: upstream, urls: ["https://a.example/v1", "https://b.example/v1"], key: ${secretKey}, model: vendor/big, max_output_tokens: 4096, reasoning: { hidden: true }, price: { prompt: 1, completion: 2 } } }\n`,
  );
  const run = async (...args: string[]) => {
    const program = await inkwell(folder.path, args);
    assert.equal(program.code, 0, program.stderr);
    assert.ok(!(program.stdout + program.stderr).includes(secretKey));
    return program.stdout;
  };
  assert.match(await run("models"), /^big +https:\/\/a\.example\/v1, https:\/\/b\.example\/v1 +8,192 +64 /m);
  assert.match(await run("models", "pull", "big"), /no file to fetch/);
  const { models } = JSON.parse(await run("config", "check", "--json"));
  assert.deepEqual(models, {
    big: {
      engine: "upstream",
      urls: ["https://a.example/v1", "https://b.example/v1"],
      key: "configured",
      model: "vendor/big",
      dialect: "compatible",
      context_window: 8192,
      max_output_tokens: 4096,
      parallel: 64,
      price: { prompt: 1, completion: 2 },
      connect_seconds: 5,
      headers_seconds: 120,
      idle_seconds: 60,
      template_tokens: 512,
      reserved: 8,
      send_stop: false,
      pass_errors: false,
      reasoning: { opened: false, hidden: true },
    },
  });
});
