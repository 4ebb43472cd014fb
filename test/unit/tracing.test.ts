/** Spans as they are made of what is reported of one request: failed, refused, charged late, in a trace of its caller's or not. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import pino from "pino";
import type { Receipt } from "../../src/chat/generate.ts";
import type { FinishedRequest } from "../../src/http/request-context.ts";
import { Tracing } from "../../src/telemetry/traces.ts";
import { type Span, startCollector } from "../fixtures/collector.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const spanId = "b7ad6b7169203331";

const finished: FinishedRequest = {
  requestId: "r1",
  method: "POST",
  path: "/v1/chat/completions",
  status: 200,
  code: null,
  durationMs: 30,
  firstTokenMs: null,
  accountId: "ada",
  keyId: "key",
  model: "small",
  streamed: true,
  refused: null,
  traceparent: null,
};

function receiptOf({ ending, isLate = false }: Pick<Receipt, "ending"> & { isLate?: boolean }): Receipt {
  const nowMs = performance.now();
  return {
    requestId: "r1",
    accountId: "ada",
    keyId: "key",
    model: "small",
    ending,
    usage: { promptTokens: 3, cachedTokens: 1, completionTokens: 5, reasoningTokens: 0, estimated: false },
    cost: 2_500_000,
    paid: { base: 2_500_000, overage: 0, additional: 0 },
    paidBefore: null,
    shortfallBefore: 0,
    shortfall: 0,
    isLate,
    times: { preparedMs: nowMs, heldMs: nowMs, generatedMs: nowMs },
  };
}

/** What the collector has of `report`. */
async function spansOf(report: (tracing: Tracing) => void | Promise<void>): Promise<Span[]> {
  await using collector = await startCollector();
  const tracing = new Tracing(
    { url: `${collector.endpoint}/v1/traces`, serviceName: "inkwell" },
    { version: "1", logger: pino({ level: "silent" }), onLost: () => assert.fail("a span was lost") },
  );
  await report(tracing);
  await tracing.close();
  return collector.spans();
}

function ask(tracing: Tracing): void {
  tracing.asked("r1", "small", {
    model: "small",
    messages: [{ role: "user", content: "hello" }],
    stream: true,
    sampling: { stop: [] },
    reasoning: {},
  });
}

/** The span of the request, and those below it in the order in which they ended. */
const stagesOf = (spans: readonly Span[]) => {
  const root = spans.find(({ kind }) => kind === "server");
  assert.ok(root !== undefined);
  const stages = spans.filter((span) => span !== root);
  for (const stage of stages)
    assert.deepEqual([stage.traceId, stage.parentSpanId], [root.traceId, root.spanId]);
  return { root, stages, names: stages.map(({ name }) => name) };
};

test("a generation that failed is an error with its code, on its own span as on the request's", async () => {
  const spans = await spansOf((tracing) => {
    ask(tracing);
    tracing.settled(receiptOf({ ending: "engine_failed" }));
    tracing.finished({ ...finished, code: "upstream_error" });
  });
  const { root, stages, names } = stagesOf(spans);
  assert.deepEqual(names, ["prepare", "hold", "chat small", "settle"]);
  assert.deepEqual(
    [root, ...stages].map(({ failed, attributes }) => [failed, attributes["error.type"]]),
    [
      [true, "upstream_error"],
      [false, undefined],
      [false, undefined],
      [true, "upstream_error"],
      [false, undefined],
    ],
  );
});

test("a request that was refused is one span, with its code", async () => {
  for (const [status, code] of [
    [402, "insufficient_credits"],
    [429, "rate_limit_exceeded"],
    [502, "upstream_error"],
  ] as const) {
    const spans = await spansOf((tracing) => {
      ask(tracing);
      tracing.finished({ ...finished, status, code, model: null });
    });
    const { root, names } = stagesOf(spans);
    assert.deepEqual(names, []);
    assert.deepEqual([root.name, root.attributes["error.type"]], ["chat small", code]);
    assert.equal(root.failed, status >= 500);
  }
});

test("a charge that comes after the answer's end has its spans then, and tells the tokens once", async () => {
  const spans = await spansOf(async (tracing) => {
    ask(tracing);
    const receipt = receiptOf({ ending: "stop", isLate: true });
    tracing.finished(finished);
    await nextTurn();
    tracing.settled(receipt);
    // The request that it belongs to has been told; nothing is told twice.
    tracing.settled(receipt);
  });
  const { root, stages, names } = stagesOf(spans);
  assert.deepEqual(names, ["prepare", "hold", "chat small", "settle"]);
  const told = [root, ...stages].map(({ attributes }) => [
    attributes["gen_ai.usage.input_tokens"],
    attributes["gen_ai.usage.output_tokens"],
    attributes["inkwell.credits"],
    attributes["inkwell.ending"],
  ]);
  const nothing = [undefined, undefined, undefined, undefined];
  assert.deepEqual(told, [nothing, nothing, nothing, nothing, [3, 5, 2.5, "stop"]]);
  const settle = stages.at(-1);
  assert.ok(settle !== undefined && settle.endMs >= root.endMs, "it was settled after the end");
});

test("a header that is no traceparent begins a trace of its own, and one of a later version is read as far as it is known", async () => {
  const parentOf = async (traceparent: string) => {
    const [root] = await spansOf((tracing) => {
      ask(tracing);
      tracing.finished({ ...finished, traceparent });
    });
    return root?.parentSpanId;
  };
  const known = `${traceId}-${spanId}-01`;
  for (const [header, parent] of [
    [`00-${known}`, spanId],
    [`00-${known}-anything`, ""],
    [`00-${known}-`, ""],
    [`01-${known}`, spanId],
    [`cc-${known}-anything`, spanId],
    [`cc-${known}anything`, ""],
    [`ff-${known}`, ""],
    [`00-${"0".repeat(32)}-${spanId}-01`, ""],
    [`00-${known.toUpperCase()}`, ""],
  ] as const) {
    assert.equal(await parentOf(header), parent, header);
  }
});
