/** The log for operators: one line per request, as JSON and on a terminal. */
import assert from "node:assert/strict";
import { Writable } from "node:stream";
import { test } from "node:test";
import { pino } from "pino";
import { createLogger, terminalText } from "../../src/telemetry/logger.ts";
import { RecentErrors } from "../../src/telemetry/recent-errors.ts";
import { RequestLog } from "../../src/telemetry/request-log.ts";
import { chargeOf, recordOf } from "../fixtures/request-record.ts";

function recorded(use: (log: RequestLog) => void): Record<string, unknown>[] {
  const lines: Record<string, unknown>[] = [];
  const write = (line: string) => {
    const fields: Record<string, unknown> = JSON.parse(line);
    lines.push(fields);
  };
  use(new RequestLog(pino({ base: null, timestamp: false }, { write })));
  return lines;
}

const charge = chargeOf({
  usage: { promptTokens: 40, cachedTokens: 30, completionTokens: 7, reasoningTokens: 2, estimated: false },
  costMicro: 610,
  paid: { base: 610, overage: 0, additional: 0 },
});

const answered = { durationMs: 34.6, firstTokenMs: 11.2 };

test("logs a charged request in one line, with its cost", () => {
  const lines = recorded((log) => log.finished(recordOf({ ...answered, charge })));
  assert.equal(lines.length, 1);
  const [line = {}] = lines;
  assert.equal(line.msg, "POST /v1/chat/completions 200");
  assert.equal(line.level, 30);
  assert.equal(line.credits, 0.00061);
  assert.equal(line.keyId, "key_1");
  assert.equal(
    terminalText(line),
    "POST /v1/chat/completions 200  ada  small  40 (30 cached) + 7 (2 reasoning) tokens  0.00061 credits  stop  35 ms, first token 11 ms",
  );
});

test("logs a late charge in a separate line", () => {
  const lines = recorded((log) => {
    const record = recordOf(answered, [log]);
    record.finish(200, null, null);
    record.charged(charge);
    log.finished(recordOf({ ...answered, requestId: "r2" }));
  });
  assert.deepEqual(
    lines.map(({ requestId, credits }) => [requestId, credits]),
    [
      ["r1", undefined],
      ["r1", 0.00061],
      ["r2", undefined],
    ],
  );
});

test("says what is charged in place of a charge that is given up", () => {
  const lines = recorded((log) => {
    log.unsettled(recordOf(answered), new Error("a row cannot be read"));
    // A failover has lost the hold.
    log.unsettled(recordOf(answered), { kind: "unknown_hold" });
  });
  const given = "a charge could not be recorded and is given up;";
  assert.deepEqual(
    lines.map(({ msg }) => msg),
    [
      `${given} its last checkpoint will be charged`,
      `${given} the database has no hold of it, so nothing will be charged`,
    ],
  );
});

test("logs a refusal with its code and request id", () => {
  const refused = { ...answered, status: 429, code: "rate_limit_exceeded", firstTokenMs: null } as const;
  const [line = {}] = recorded((log) => log.finished(recordOf(refused)));
  assert.equal(line.level, 30);
  assert.equal(
    terminalText(line),
    "POST /v1/chat/completions 429  ada  small  rate_limit_exceeded  35 ms  r1",
  );
});

test("logs a failure as a warning, even if the stream had begun", () => {
  for (const status of [200, 502]) {
    const [line = {}] = recorded((log) =>
      log.finished(recordOf({ ...answered, status, code: "upstream_error" })),
    );
    assert.equal(line.level, 40);
  }
});

test("logs a stream that ended with an error of the caller like any refusal", () => {
  for (const code of ["invalid_value", "request_stopped"] as const) {
    const [line = {}] = recorded((log) => log.finished(recordOf({ ...answered, status: 200, code })));
    assert.equal(line.level, 30, code);
  }
});

test("logs clients that left, unknown paths and unknown callers as such", () => {
  const gone = { ...answered, status: null, firstTokenMs: null };
  const stranger = {
    ...gone,
    path: null,
    status: 404,
    code: "unknown_path",
    model: null,
    caller: null,
  } as const;
  const lines = recorded((log) => {
    log.finished(recordOf(gone));
    log.finished(recordOf(stranger));
  });
  assert.deepEqual(lines.map(terminalText), [
    "POST /v1/chat/completions client gone  ada  small  35 ms",
    "POST (unknown path) 404  unknown_path  35 ms  r1",
  ]);
});

test("shows the fields of other lines, and the stack of a defect", () => {
  assert.equal(terminalText({ level: 30, time: 1, msg: "stopping", running: 2 }), "stopping  running=2");
  const shown = terminalText({
    msg: "a request failed",
    err: { message: "no", stack: "Error: no\n    at here" },
  });
  assert.equal(shown, "a request failed\nError: no\n    at here");
});

test("never logs keys", async () => {
  let text = "";
  const stream = new Writable({
    write(chunk, _encoding, done) {
      text += String(chunk);
      done();
    },
  });
  const logger = createLogger("info", stream);
  logger.info({ key: "ink_secret", authorization: "Bearer ink_secret", keyId: "key_1" }, "hello");
  await new Promise(setImmediate);
  assert.doesNotMatch(text, /ink_secret/);
  assert.match(text, /key_1/);
});

test("lines that a slow reader leaves waiting are bounded, and the next line tells how many are lost", async () => {
  let text = "";
  let goOn = () => {};
  const stream = new Writable({
    write(chunk, _encoding, done) {
      text += String(chunk);
      goOn = done;
    },
  });
  const logger = createLogger("info", stream);
  const long = "x".repeat(1024 * 1024);
  for (let n = 0; n < 20; n += 1) {
    logger.info({ n }, long);
    await new Promise(setImmediate);
  }
  assert.ok(stream.writableLength < 10 * 1024 * 1024, `${stream.writableLength} bytes wait`);
  while (stream.writableLength > 0) {
    goOn();
    await new Promise(setImmediate);
  }
  logger.info("again");
  await new Promise(setImmediate);
  goOn();
  await new Promise(setImmediate);
  const kept = text.match(/"n":/g)?.length ?? 0;
  assert.match(text, new RegExp(`"msg":"${20 - kept} lines of the log are lost: .*"msg":"again"`, "s"));
});

for (const isTTY of [false, true]) {
  test(`escapes hidden characters of others in ${isTTY ? "a line on a terminal" : "a JSON line"}`, async () => {
    let text = "";
    const write = (bytes: Buffer, _encoding: string, done: () => void) => {
      text += bytes.toString();
      done();
    };
    const recent = new RecentErrors();
    const logger = createLogger("info", Object.assign(new Writable({ write }), { isTTY }), recent);
    const hostile = "no\u202e dab\u009b2J\u2028\u200b";
    logger.warn({ reason: hostile, list: [hostile] }, `it said: ${hostile}`);
    logger.error({ err: new Error(`${hostile}\n    at a forged line`) }, "a request failed");
    await new Promise(setImmediate);
    const shown = String.raw`no\u202e dab\u009b2J\u2028\u200b`;
    assert.equal(text.split(shown).length - 1, isTTY ? 4 : 5, text);
    assert.doesNotMatch(text, /[\u0080-\u009f\u2000-\u206f]/);
    if (!isTTY) {
      const [line = ""] = text.split("\n");
      assert.equal(JSON.parse(line).reason, hostile, "a reader of JSON gets the text as it was");
    }
    assert.deepEqual(
      recent.list().map(({ message }) => message),
      [`a request failed: ${shown}\\u000a    at a forged line`, `it said: ${shown}: ${shown}`],
    );
  });
}

test("writes the lines of one turn together, and a warning at once", async () => {
  const written: string[][] = [];
  const write = (bytes: Buffer, _encoding: string, done: () => void) => {
    const lines = bytes.toString().trimEnd().split("\n");
    written.push(lines.map((line) => JSON.parse(line).msg));
    done();
  };
  const logger = createLogger("info", new Writable({ write }));
  logger.info("one");
  logger.info("two");
  assert.deepEqual(written, []);
  logger.warn("three");
  logger.info("four");
  assert.deepEqual(written, [["one", "two", "three"]]);
  await new Promise(setImmediate);
  logger.info("five");
  await new Promise(setImmediate);
  assert.deepEqual(written, [["one", "two", "three"], ["four"], ["five"]]);
});

for (const isTTY of [false, true]) {
  test(`loses a line that cannot be written ${isTTY ? "to a terminal" : ""}, and writes the following ones`, async () => {
    let full = true;
    let text = "";
    const stderr = new Writable({
      write(chunk, _encoding, done) {
        // Like the stderr of a process, it emits the error and stays open.
        if (full) stderr.emit("error", new Error("ENOSPC"));
        else text += String(chunk);
        done();
      },
    });
    stderr.on("error", () => {});
    const logger = createLogger("info", Object.assign(stderr, { isTTY }));
    logger.warn("lost");
    await new Promise(setImmediate);
    full = false;
    logger.warn("kept");
    await new Promise(setImmediate);
    assert.match(text, /kept/);
    assert.doesNotMatch(text, /lost/);
  });
}
