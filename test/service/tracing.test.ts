/**
 * Traces of the program as a collector receives them over HTTP: their content, what they never
 * contain, and a collector that fails or never responds.
 */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { type Collector, startCollector } from "../fixtures/collector.ts";
import { ask } from "../fixtures/http-stream.ts";
import { environment, type Folder, newFolder, type Program, startProgram } from "../fixtures/program.ts";
import { releaseTest } from "../fixtures/thorough.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream, type Upstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";
import { configureUpstream, upstreamPrice } from "../fixtures/upstream-program.ts";

const callersTrace = "0af7651916cd43dd8448eb211c80319c";
const callersSpan = "b7ad6b7169203331";
const secret = "Tell nobody of the heron.";

/** Shown for each module of OpenTelemetry's SDK, beside the log. */
const loaded = "LOADED @opentelemetry";

let collector: Collector;
let upstream: Upstream;
let folder: Folder;
let service: Program;
let url: string;
let operatorUrl: string;
let key: string;

before(async () => {
  collector = await startCollector();
  upstream = await startUpstream();
  folder = await newFolder();
  service = await start({
    COLLECTOR: collector.endpoint,
    OTEL_RESOURCE_ATTRIBUTES: "service.instance.id=one",
  });
  const up = await service.up();
  assert.ok(up.key !== null);
  ({ url, operatorUrl, key } = up);
});

after(async () => {
  for (const each of [service, folder, upstream, collector]) await each[Symbol.asyncDispose]();
});

/** Starts the program, which shows the modules of OpenTelemetry that it loads. */
async function start(env: Record<string, string>): Promise<Program> {
  const watch = path.join(folder.path, "watch.mjs");
  // The bare API, which does nothing by itself, is loaded by prom-client.
  await writeFile(
    watch,
    `import { registerHooks } from "node:module";
     registerHooks({ resolve(specifier, context, next) {
       const [name] = /@opentelemetry.+(sdk|exporter|otlp).*/.exec(specifier) ?? [];
       if (name !== undefined) process.stderr.write("LOADED " + name + "\\n");
       return next(specifier, context);
     } });`,
  );
  const { NODE_OPTIONS = "" } = environment(folder.path);
  const options = { NODE_OPTIONS: `${NODE_OPTIONS} --import=${pathToFileURL(watch)}` };
  configureUpstream(folder.path, upstream, `tracing: { endpoint: "\${COLLECTOR:-}" }\n`);
  return startProgram(folder.path, { env: { ...options, ...env } });
}

test("creates a span in the caller's trace, with one for each stage and without any message text", async () => {
  // The answer ends after its first text has been read.
  const read = Promise.withResolvers<void>();
  const { play } = upstream;
  upstream.play = async (call) => {
    await call.send(first, text("Hello"));
    await read.promise;
    await call.stream(text(" world"), finish(), usage(5, 2), done);
  };
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
  let answer = "";
  for await (const part of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    answer += part;
    if (answer.includes("Hello")) read.resolve();
  }
  upstream.play = play;
  const said = [...answer.matchAll(/"content":"([^"]{3,})"/g)].map(([, piece = ""]) => piece);
  assert.ok(said.length > 0);
  const [, usageText = ""] = /"usage":(\{.*?\}\})/.exec(answer) ?? [];
  const told: { prompt_tokens: number; completion_tokens: number } = JSON.parse(
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
  const { prompt, completion } = upstreamPrice;
  assert.equal(credits, (prompt * told.prompt_tokens + completion * told.completion_tokens) / 1e6);
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
    "gen_ai.usage.input_tokens": told.prompt_tokens,
    "gen_ai.usage.output_tokens": told.completion_tokens,
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
  const [firstToken] = root.events;
  assert.equal(firstToken?.name, "first_token");
  const times = [
    beforeMs - 1,
    root.startMs,
    stages[2]?.startMs,
    firstToken?.atMs,
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
  const before = collector.spans().length;
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
  await until("the spans have come", () => collector.spans().length === before + 7);

  const roots = collector
    .spans()
    .slice(before)
    .filter(({ kind }) => kind === "server");
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
});

// test/unit/tracing.test.ts has a collector that is not there.
test("counts lost spans if the collector refuses them, and logs one line", async () => {
  collector.status = 400;
  const lost = async () => {
    const metrics = await (await fetch(`${operatorUrl}/metrics`)).text();
    return Number(/^inkwell_lost_spans_total (\d+)$/m.exec(metrics)?.[1]);
  };
  for (const expected of [5, 10]) {
    assert.equal((await ask({ url, key, max_tokens: 3 })).status, 200);
    await until("the spans are given up", async () => (await lost()) === expected);
  }
  const told = () => service.stderr.match(/the collector does not take traces/g)?.length ?? 0;
  await until("a line says so", () => told() > 0);
  assert.equal(told(), 1);
});

test("delays neither requests nor the stop if the collector never responds, and sends queued spans before the end", async () => {
  collector.status = null;
  const before = collector.requests.length;
  assert.equal((await ask({ url, key, max_tokens: 3 })).status, 200);
  await until("a batch is under way", () => collector.requests.length > before);
  const last = await ask({ url, key, max_tokens: 3 });
  assert.equal(last.status, 200);
  assert.deepEqual(await service.stop(), { code: 0, signal: null });
  const id = last.headers.get("x-request-id");
  assert.ok(collector.spans().some(({ attributes }) => attributes["inkwell.request_id"] === id));
});

releaseTest("loads no OpenTelemetry without a collector", async () => {
  assert.ok(service.stderr.includes(loaded), "with a collector it is loaded");
  await using other = await start({});
  const up = await other.up();
  await (await ask({ url: up.url, key, max_tokens: 3 })).text();
  await other.stop();
  assert.ok(!other.stderr.includes(loaded));
});
