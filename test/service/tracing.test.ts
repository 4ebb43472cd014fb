/**
 * Traces of the program as a collector receives them over HTTP: their content, what they never
 * contain, and an unavailable collector.
 */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { startCollector } from "../fixtures/collector.ts";
import { ask } from "../fixtures/http-stream.ts";
import { defaultPrice, freePort, newFolder, startProgram } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { upstreamModel } from "../fixtures/upstream-program.ts";

const callersTrace = "0af7651916cd43dd8448eb211c80319c";
const callersSpan = "b7ad6b7169203331";
const secret = "Tell nobody of the heron.";

test("creates a span in the caller's trace, with one for each stage and without any message text", async () => {
  await using collector = await startCollector();
  await using folder = await newFolder();
  await using service = startProgram(folder.path, {
    env: {
      INKWELL_TRACING__ENDPOINT: collector.endpoint,
      OTEL_RESOURCE_ATTRIBUTES: "service.instance.id=one",
    },
  });
  const { url, key } = await service.up();
  assert.ok(key !== null);
  const beforeMs = Date.now();
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${key}`,
      "content-type": "application/json",
      traceparent: `00-${callersTrace}-${callersSpan}-01`,
    },
    body: JSON.stringify({
      model: "smollm2-135m-instruct",
      messages: [{ role: "user", content: secret }],
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 20,
      temperature: 0.5,
      seed: 7,
      stop: ["the bittern's word"],
    }),
  });
  const text = await response.text();
  const said = [...text.matchAll(/"content":"([^"]{3,})"/g)].map(([, piece = ""]) => piece);
  assert.ok(said.length > 0);
  const [, usageText = ""] = /"usage":(\{.*?\}\})/.exec(text) ?? [];
  const usage: { prompt_tokens: number; completion_tokens: number } = JSON.parse(
    usageText.replace(/,"(prompt|completion)_tokens_details".*/, "}"),
  );
  await until("the spans have come", () => collector.spans().length === 5);
  const afterMs = Date.now();

  const spans = collector.spans();
  const root = spans.find(({ kind }) => kind === "server");
  assert.ok(root !== undefined);
  assert.equal(root.name, "chat smollm2-135m-instruct");
  assert.deepEqual([root.traceId, root.parentSpanId], [callersTrace, callersSpan]);
  assert.equal(root.failed, false);
  const {
    "inkwell.credits": credits,
    "gen_ai.response.time_to_first_chunk": firstChunk,
    ...rest
  } = root.attributes;
  const { prompt, completion } = defaultPrice;
  assert.equal(credits, (prompt * usage.prompt_tokens + completion * usage.completion_tokens) / 1e6);
  assert.ok(Number(firstChunk) > 0);
  const requestId = response.headers.get("x-request-id");
  assert.deepEqual(rest, {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "inkwell",
    "gen_ai.request.model": "smollm2-135m-instruct",
    "gen_ai.request.max_tokens": 20,
    "gen_ai.request.temperature": 0.5,
    "gen_ai.request.seed": 7,
    "gen_ai.request.stream": true,
    "gen_ai.response.id": `chatcmpl-${requestId}`,
    "gen_ai.response.model": "smollm2-135m-instruct",
    "gen_ai.response.finish_reasons": [rest["inkwell.ending"]],
    "gen_ai.usage.input_tokens": usage.prompt_tokens,
    "gen_ai.usage.output_tokens": usage.completion_tokens,
    "gen_ai.usage.cache_read.input_tokens": 0,
    "gen_ai.usage.reasoning.output_tokens": 0,
    "http.request.method": "POST",
    "http.route": "/v1/chat/completions",
    "http.response.status_code": 200,
    "inkwell.account": "default",
    "inkwell.request_id": requestId,
    "inkwell.ending": rest["inkwell.ending"],
    "inkwell.shortfall_credits": 0,
    "inkwell.usage_estimated": false,
  });
  const stages = spans
    .filter(({ spanId }) => spanId !== root.spanId)
    .toSorted((a, b) => a.startMs - b.startMs);
  assert.deepEqual(
    stages.map(({ name, kind }) => [name, kind]),
    [
      ["prepare", "internal"],
      ["hold", "internal"],
      ["chat smollm2-135m-instruct", "client"],
      ["settle", "internal"],
    ],
  );
  for (const stage of stages) {
    assert.deepEqual([stage.traceId, stage.parentSpanId], [callersTrace, root.spanId]);
    assert.ok(!Object.keys(stage.attributes).some((name) => name.includes("usage")), "tokens are told once");
  }
  const [first] = root.events;
  assert.equal(first?.name, "first_token");
  const times = [
    beforeMs - 1,
    root.startMs,
    stages[2]?.startMs,
    first?.atMs,
    stages[2]?.endMs,
    root.endMs,
    afterMs + 1,
  ];
  assert.deepEqual(
    times,
    times.toSorted((a, b) => Number(a) - Number(b)),
    "one thing after another",
  );

  const resource = collector.resource();
  assert.equal(resource["service.name"], "inkwell");
  assert.equal(resource["service.instance.id"], "one");
  const all = collector.requests.map((each) => each.text).join();
  assert.deepEqual([...new Set(collector.requests.map((each) => each.path))], ["/v1/traces"]);
  for (const word of [key, key.slice(4, 30), "heron", "bittern", ...said]) {
    assert.ok(!all.includes(`"${word}`) && !all.includes(`${word} `), `${word} is in no trace`);
  }
});

test("records the code of a refusal but not the name of an unknown model", async () => {
  await using collector = await startCollector();
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  const model = upstreamModel(folder.path, upstream);
  // Without a setting the standard variable applies. Queued spans are sent before the end.
  await using service = startProgram(folder.path, {
    env: { ...model, OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.endpoint}/`, OTEL_SERVICE_NAME: "ink-north" },
  });
  const { url, key } = await service.up();
  assert.ok(key !== null);
  const unsampled = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, traceparent: `00-${callersTrace}-${callersSpan}-00` },
    body: "{}",
  });
  assert.equal(unsampled.status, 415);
  await unsampled.text();
  await (await ask({ url, key, model: "the-heron-model" })).text();
  await (await ask({ url, key: "ink_none" })).text();
  await (await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })).text();
  // More than 64 bits, for which a collector would refuse the whole batch.
  await (await ask({ url, key, max_tokens: 5, seed: 1e30, presence_penalty: -1e300 })).text();
  assert.deepEqual(await service.stop(), { code: 0, signal: null });

  const roots = collector.spans().filter(({ kind }) => kind === "server");
  assert.deepEqual(
    roots.map(({ name, attributes, parentSpanId }) => [
      name,
      attributes["error.type"],
      attributes["inkwell.account"],
      parentSpanId,
    ]),
    [
      ["chat", "model_not_found", "default", ""],
      ["chat", "invalid_api_key", undefined, ""],
      ["chat smollm2-135m-instruct", undefined, "default", ""],
    ],
  );
  assert.ok(!collector.requests.some(({ text }) => /heron|1e\+30/.test(text)));
  assert.equal(collector.resource()["service.name"], "ink-north");
});

test("loads no OpenTelemetry without a collector", async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  const model = upstreamModel(folder.path, upstream);
  // The bare API, which does nothing by itself, is loaded by prom-client.
  const watch = path.join(folder.path, "watch.mjs");
  await writeFile(
    watch,
    `import { registerHooks } from "node:module";
     registerHooks({ resolve(specifier, context, next) {
       if (/^@opentelemetry.(sdk|exporter|otlp)/.test(specifier)) process.stderr.write("LOADED " + specifier + "\\n");
       return next(specifier, context);
     } });`,
  );
  const NODE_OPTIONS = `--import=${pathToFileURL(watch)}`;
  for (const [env, loaded] of [
    [{}, false],
    [{ INKWELL_TRACING__ENDPOINT: "http://127.0.0.1:9" }, true],
  ] as const) {
    await using service = startProgram(folder.path, { env: { ...model, NODE_OPTIONS, ...env } });
    const { url, key } = await service.up();
    if (key !== null) await (await ask({ url, key, max_tokens: 3 })).text();
    await service.stop();
    assert.equal(service.stderr.includes("LOADED @opentelemetry/"), loaded);
  }
});

test("counts lost spans if the collector is unavailable, and logs one line", async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  const model = upstreamModel(folder.path, upstream);
  await using service = startProgram(folder.path, {
    env: { ...model, INKWELL_TRACING__ENDPOINT: `http://127.0.0.1:${await freePort()}` },
  });
  const { url, operatorUrl, key } = await service.up();
  assert.ok(key !== null);
  const lost = async () => {
    const metrics = await (await fetch(`${operatorUrl}/metrics`)).text();
    return Number(/^inkwell_lost_spans_total (\d+)$/m.exec(metrics)?.[1]);
  };
  for (const expected of [5, 10]) {
    assert.equal((await ask({ url, key, max_tokens: 3 })).status, 200);
    await until("the spans are given up", async () => (await lost()) === expected);
  }
  assert.deepEqual(await service.stop(), { code: 0, signal: null });
  assert.equal(service.stderr.match(/the collector does not take traces/g)?.length, 1);
});

test("delays neither requests nor the stop if the collector never responds", async () => {
  await using collector = await startCollector(null);
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  const model = upstreamModel(folder.path, upstream);
  await using service = startProgram(folder.path, {
    env: { ...model, INKWELL_TRACING__ENDPOINT: collector.endpoint },
  });
  const { url, key } = await service.up();
  assert.ok(key !== null);
  assert.equal((await ask({ url, key, max_tokens: 3 })).status, 200);
  await until("a batch is under way", () => collector.requests.length > 0);
  assert.equal((await ask({ url, key, max_tokens: 3 })).status, 200);
  assert.deepEqual(await service.stop(), { code: 0, signal: null });
});
