/** Spans of failed, refused and late charged requests, and the trace of the caller. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import pino from "pino";
import { Tracing } from "../../src/telemetry/tracing.ts";
import { type Span, startCollector } from "../fixtures/collector.ts";
import { chargeOf, recordOf } from "../fixtures/request-record.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const spanId = "b7ad6b7169203331";

/** Returns the spans that the collector got from `report`. */
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

/** Returns the request span, and its stage spans in the order of their ends. */
const stagesOf = (spans: readonly Span[]) => {
  const root = spans.find(({ kind }) => kind === "server");
  assert.ok(root !== undefined);
  const stages = spans.filter((span) => span !== root);
  for (const stage of stages)
    assert.deepEqual([stage.traceId, stage.parentSpanId], [root.traceId, root.spanId]);
  return { root, stages, names: stages.map(({ name }) => name) };
};

test("marks the generation and request spans of a failed generation with its code", async () => {
  const charge = chargeOf({ ending: "engine_failed" });
  const spans = await spansOf((tracing) => tracing.finished(recordOf({ code: "upstream_error", charge })));
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

test("keeps the order of times although another observer of the request was slow", async () => {
  const startedMs = performance.now() - 1000;
  const at = (ms: number) => startedMs + ms;
  const times = {
    preparedMs: at(10),
    heldMs: at(20),
    firstTextMs: at(30),
    generatedMs: at(40),
    settledMs: at(45),
  };
  const record = recordOf({
    startedMs,
    parsedMs: at(5),
    firstTokenMs: 30,
    durationMs: 50,
    charge: chargeOf({ times }),
  });
  const { root, stages } = stagesOf(await spansOf((tracing) => tracing.finished(record)));
  const offsets = [...stages.map(({ startMs }) => startMs), root.events[0]?.atMs ?? 0, root.endMs];
  assert.deepEqual(
    offsets.map((ms) => Math.round(ms - root.startMs)),
    [5, 10, 20, 40, 30, 50],
  );
});

test("makes one span with the code for a refused request", async () => {
  for (const [status, code] of [
    [402, "insufficient_credits"],
    [429, "rate_limit_exceeded"],
    [502, "upstream_error"],
  ] as const) {
    const spans = await spansOf((tracing) => tracing.finished(recordOf({ status, code, isAccepted: false })));
    const { root, names } = stagesOf(spans);
    assert.deepEqual(names, []);
    assert.deepEqual([root.name, root.attributes["error.type"]], ["chat small", code]);
    assert.equal(root.failed, status >= 500);
  }
});

test("adds the stage spans when a late charge is recorded, with the tokens on one span", async () => {
  const spans = await spansOf(async (tracing) => {
    const record = recordOf({}, [tracing]);
    record.finish(200, null, null);
    await nextTurn();
    const charge = chargeOf({ ending: "stop" });
    record.charged(charge);
    // The stages have been sent, and are not sent twice.
    record.charged(charge);
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

test("counts lost spans if the collector is unavailable, and logs one line", () =>
  unlessStalled(async () => {
    const collector = await startCollector();
    // Nothing listens there any more.
    await collector[Symbol.asyncDispose]();
    const lines: string[] = [];
    const lost: number[] = [];
    const tracing = new Tracing(
      { url: `${collector.endpoint}/v1/traces`, serviceName: "inkwell" },
      {
        version: "1",
        logger: pino({}, { write: (line: string) => lines.push(line) }),
        onLost: (spans) => lost.push(spans),
      },
    );
    for (let n = 0; n < 3; n += 1) tracing.finished(recordOf({ charge: chargeOf({ ending: "stop" }) }));
    await tracing.close();
    assert.deepEqual(lost, [15]);
    assert.deepEqual(
      lines.map((line) => /the collector does not take traces/.test(line)),
      [true],
    );
  }));

test("starts a new trace if traceparent is invalid, and accepts later versions of the header", async () => {
  const parentOf = async (traceparent: string) => {
    const [root] = await spansOf((tracing) => tracing.finished(recordOf({ traceparent })));
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
