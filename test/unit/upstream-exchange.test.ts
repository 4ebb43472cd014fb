/** One HTTP request to an upstream, over a connection that the test plays. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Exchange } from "../../src/engines/upstream/exchange.ts";
import { UpstreamServer } from "../../src/engines/upstream/server.ts";
import { limits } from "../../src/limits/limits.ts";
import { Turns } from "../../src/limits/turns.ts";

/** A connection that delivers the rest of the answer as soon as it is resumed. */
function connect(rest: string[] = [], status = 200) {
  const seen = { changes: 0, freed: 0 };
  const owner = { changed: () => (seen.changes += 1), freed: () => (seen.freed += 1) };
  const exchange = new Exchange(owner, 60_000);
  const controller = {
    paused: false,
    aborted: false,
    reason: null,
    rawHeaders: null,
    rawTrailers: null,
    pause() {
      controller.paused = true;
    },
    resume() {
      controller.paused = false;
      for (const data of rest.splice(0)) exchange.onResponseData(controller, Buffer.from(data));
      exchange.onResponseEnd();
    },
    abort() {},
  };
  exchange.onRequestStart(controller);
  exchange.onResponseStart(controller, status, { "content-type": "text/event-stream" });
  const send = (data: string) => exchange.onResponseData(controller, Buffer.from(data));
  return { exchange, controller, seen, send };
}

test("pauses at a full window, and reads on when it is taken", () => {
  const { exchange, controller, seen, send } = connect(["data: b\n\n", "data: c"]);
  send(`data: ${"a".repeat(65_000)}\n\n`);
  assert.equal(controller.paused, false);
  send(`data: ${"a".repeat(1000)}\n\n`);
  assert.equal(controller.paused, true);
  assert.equal(seen.changes, 2, "the owner is told of the first bytes, and of a full window");
  assert.deepEqual(
    exchange.takeEvents().map(({ length }) => length),
    [65_000, 1000],
  );
  assert.equal(controller.paused, false);
  assert.equal(exchange.hasArrived, true, "the connection delivered more at once");
  assert.equal(exchange.ending, null, "the end comes after all events");
  assert.deepEqual(exchange.takeEvents(), ["b", "c"]);
  assert.equal(exchange.ending, "ended");
});

for (const characters of [1, 1_000_000]) {
  test(`a body of ${characters} characters that cannot be written fails its request and frees the slot`, async () => {
    const times = { connectMs: 1000, headersMs: 1000, idleMs: 1000 };
    const options = { url: "http://127.0.0.1:9/v1", key: null, connectionsMax: 1, times };
    const server = new UpstreamServer({ ...options, turns: new Turns(limits.largeMessages, { turnMs: 0 }) });
    const { promise, resolve } = Promise.withResolvers<void>();
    const body = {
      characters,
      text() {
        throw new Error("too long for a text");
      },
    };
    const attempt = server.begin("ada", null);
    const exchange = server.send(body, { changed() {}, freed: resolve }, { attempt, isFresh: false });
    await promise;
    assert.equal(server.busy, 0);
    assert.match(String(exchange.ending), /could not be written: too long for a text/);
    await server.close();
  });
}

test("frees the connection at its end, or when an owner that waits has seen the end", () => {
  const early = connect();
  early.exchange.onResponseEnd();
  assert.equal(early.seen.freed, 1);
  const awaited = connect();
  awaited.exchange.holdSlot();
  awaited.exchange.onResponseEnd();
  assert.equal(awaited.seen.freed, 0);
  awaited.exchange.releaseSlot();
  awaited.exchange.abort();
  assert.equal(awaited.seen.freed, 1);
});

test("an upstream that responds with an error works on nothing, even before the end of its answer", () => {
  assert.equal(connect().exchange.hasBegun, true);
  assert.equal(connect([], 503).exchange.hasBegun, false);
});

test("keeps the events before a malformed one, and none after it", () => {
  const { exchange, send } = connect();
  send(`data: a\n\nevent: error\ndata: oops\n\ndata: b\n\n`);
  assert.deepEqual(exchange.takeEvents(), ["a"]);
  assert.match(String(exchange.ending), /oops/);
});

/** Delivers an answer in one piece, and returns its events with the ending. */
function receive(bytes: Buffer): { events: string[]; ending: unknown } {
  const { exchange, controller } = connect();
  exchange.onResponseData(controller, bytes);
  exchange.onResponseEnd();
  return { events: exchange.takeEvents(), ending: exchange.ending };
}

/** Processor time of the thread, which does not depend on the load of the machine. */
function workMs(work: () => void): number {
  const before = process.threadCpuUsage();
  work();
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / 1000;
}

/**
 * Repeats `work` until the counter of processor time, which may tick in 10 ms, is exact enough.
 */
function msOf(work: () => void): number {
  work();
  let [ms, runs] = [0, 0];
  while (ms < 100) {
    ms += workMs(work);
    runs += 1;
  }
  return ms / runs;
}

const hostileUnits: [name: string, unit: string][] = [
  ["CR", "\r"],
  ["CR and characters beyond Latin-1", "\r\u20ac"],
  ["lines that are no fields", "a\r"],
  ["CRLF", "x\r\n"],
  ["empty data", "data\r"],
  ["retries without a number", "retry:x\n"],
];
for (const [name, unit] of hostileUnits) {
  test(`takes time in proportion to the bytes of an answer that consists of ${name}`, () => {
    const whole = Buffer.from(`${unit.repeat(262_144 / Buffer.byteLength(unit))}\u20ac`);
    const part = whole.subarray(0, whole.length / 16);
    const partsMs = msOf(() => {
      for (let n = 0; n < 16; n += 1) receive(part);
    });
    const wholeMs = msOf(() => receive(whole));
    // Quadratic, it would be sixteen times as long.
    assert.ok(wholeMs < 5 * partsMs, `${wholeMs} ms at once, ${partsMs} ms in sixteen answers`);
  });
}

test("takes no longer for lines that are no fields than for the same number of events", () => {
  const size = 131_072;
  const junkMs = msOf(() => receive(Buffer.from("a\n".repeat(size))));
  const eventsMs = msOf(() => receive(Buffer.from("data:\n\n".repeat(size))));
  assert.ok(junkMs < 3 * eventsMs, `${junkMs} ms for lines, ${eventsMs} ms for events`);
});

test("ends an answer whose event does not end, and one without events", () => {
  const endless = { data: `data: ${"a".repeat(1000)}`, comments: ": still here\n\n" };
  for (const text of Object.values(endless)) {
    const { exchange, send } = connect();
    for (let sent = 0; sent <= 1024 * 1024; sent += text.length) {
      assert.equal(exchange.ending, null);
      send(text);
      assert.deepEqual(exchange.takeEvents(), []);
    }
    assert.match(String(exchange.ending), /1048576 characters without an event/);
  }
});

test("counts the characters of each event by themselves", () => {
  const { exchange, send } = connect();
  for (let n = 0; n < 40; n += 1) {
    send(`: comment\n\ndata: ${"a".repeat(60_000)}\n\n`);
    assert.equal(exchange.takeEvents().length, 1);
  }
  assert.equal(exchange.ending, null);
});

test("skips a byte order mark that is cut, and accepts each kind of line end at the end", () => {
  const { exchange, controller } = connect();
  for (const byte of Buffer.from("\ufeffdata: a\r\r")) {
    exchange.onResponseData(controller, Buffer.of(byte));
    exchange.takeEvents();
  }
  exchange.onResponseData(controller, Buffer.from("data: \ufeffb"));
  exchange.onResponseEnd();
  assert.deepEqual(exchange.takeEvents(), ["\ufeffb"]);
  assert.deepEqual(receive(Buffer.from("\ufeffdata: a\r\r")).events, ["a"]);
});

test("reads an error response whose characters are cut", () => {
  const { exchange, controller } = connect();
  exchange.onResponseStart(controller, 500, {});
  for (const byte of Buffer.from("größer €")) exchange.onResponseData(controller, Buffer.of(byte));
  exchange.onResponseEnd();
  assert.match(String(exchange.ending), /it answered 500: größer €$/);
});

/** A connection whose head is `status`, again and again, until the exchange gives up. */
async function endingOfHeads(status: number, body: string): Promise<string> {
  const { promise: freed, resolve } = Promise.withResolvers<void>();
  const exchange: Exchange = new Exchange({ changed() {}, freed: resolve }, 30);
  const controller = {
    paused: false,
    aborted: false,
    reason: null,
    rawHeaders: null,
    rawTrailers: null,
    pause() {},
    resume() {},
    abort: (reason: Error) => exchange.onResponseError(controller, reason),
  };
  exchange.onRequestStart(controller);
  let sent = 0;
  const sending = setInterval(() => {
    sent += 1;
    if (sent === 5000) return exchange.onResponseError(controller, new Error("the test is over"));
    exchange.onResponseStart(controller, status, {});
    if (body !== "") exchange.onResponseData(controller, Buffer.from(body));
  }, 1);
  await freed;
  clearInterval(sending);
  return String(exchange.ending);
}

test("gives up informational responses and error responses that do not end", async () => {
  assert.match(await endingOfHeads(103, ""), /no answer in time/);
  assert.match(await endingOfHeads(500, "x"), /it answered 500: x/);
});
