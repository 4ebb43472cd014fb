/** Clients that leave, read slowly or do not read; silent streams; and a service that stops. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { describe, test } from "node:test";
import { readEvents } from "../fixtures/events.ts";
import { holdBack } from "../fixtures/held-back.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { readAll } from "../fixtures/raw-http.ts";
import { babble, errorOf, hello, say, startService, type TestService } from "../fixtures/service.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { until } from "../fixtures/until.ts";

/** Sends a chat request over a new socket, and reads nothing of the answer. */
function open(service: TestService, body: object): Socket {
  const text = JSON.stringify({ model: "small", messages: hello, ...body });
  const socket = connect({ port: service.port, host: "127.0.0.1" });
  socket.on("error", () => {});
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${service.key}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  );
  return socket;
}

/** Reads the answer: the text so far, and all of it. */
function reading({ body }: Response): { received(): string; rest: Promise<string> } {
  assert.ok(body !== null);
  let text = "";
  const read = async () => {
    for await (const chunk of body.pipeThrough(new TextDecoderStream())) text += chunk;
    return text;
  };
  return { received: () => text, rest: read() };
}

/** Returns whether no token has been made since the last call. */
function standsStill(service: TestService): () => boolean {
  let before = -1;
  return () => {
    const stalled = service.engine.tokensMade === before;
    before = service.engine.tokensMade;
    return stalled && before > 0;
  };
}

/** Tokens that the test releases. */
function tokensByHand(): { tokens: AsyncIterable<string>; give(token: string): void } {
  const given: string[] = [];
  let wake = Promise.withResolvers<void>();
  return {
    give(token) {
      given.push(token);
      wake.resolve();
    },
    tokens: {
      async *[Symbol.asyncIterator]() {
        for (;;) {
          const token = given.shift();
          if (token !== undefined) yield token;
          else {
            await wake.promise;
            wake = Promise.withResolvers();
          }
        }
      },
    },
  };
}

describe("a client that leaves", () => {
  for (const stream of [true, false]) {
    test(`before the first token is noticed at once, ${stream ? "streamed" : "in one piece"} (BerriAI/litellm#31499)`, async () => {
      await using service = await startService({ script: { tokens: tokensByHand().tokens } });
      const socket = open(service, { stream });
      await until("the engine is at work", () => service.engine.working === 1);
      const passedMs = startOwnTime();
      socket.destroy();
      await until("the engine is stopped", () => service.engine.open === 0);
      assert.ok(passedMs() < 5_000);
      await until("the request is settled", () => service.settled.length === 1);
      assert.equal(service.settled[0]?.ending, "client_gone");
      assert.equal(service.settled[0]?.usage.promptTokens, 3, "the engine was at work on the prompt");
      await until("the request is reported", () => service.finished.length === 1);
      assert.equal(service.finished[0]?.status, null);
    });

    test(`in the middle stops the engine, ${stream ? "streamed" : "in one piece"} (BerriAI/litellm#30244)`, async () => {
      await using service = await startService({ script: babble("word ", { tokenDelayMs: 1 }) });
      const socket = open(service, { stream });
      await until("tokens are made", () => service.engine.tokensMade > 5);
      socket.destroy();
      await until("the request is settled", () => service.settled.length === 1);
      const made = service.engine.tokensMade;
      assert.equal(service.settled[0]?.ending, "client_gone");
      assert.equal(service.settled[0]?.usage.completionTokens, made, "every token that was made is paid");
      await new Promise((resolve) => setTimeout(resolve, 20));
      assert.equal(service.engine.tokensMade, made, "no token is made for nobody");
    });
  }

  test("by closing its half of the connection has left too", async () => {
    await using service = await startService({ script: babble("word ", { tokenDelayMs: 1 }) });
    const socket = open(service, { stream: true });
    await until("tokens are made", () => service.engine.tokensMade > 5);
    const received = readAll(socket);
    // The client sends nothing more but still reads. The server ends the request and the
    // connection.
    socket.end();
    await until("the request is settled", () => service.settled.length === 1);
    assert.doesNotMatch(await received, /\[DONE\]/);
    assert.equal(service.settled[0]?.ending, "client_gone");
    assert.equal(service.settled[0]?.usage.completionTokens, service.engine.tokensMade);
    assert.equal(service.engine.open, 0, "the engine works for it no longer");
  });

  test("ends all requests that it sent ahead", async () => {
    await using service = await startService({ script: { tokens: tokensByHand().tokens } });
    const text = JSON.stringify({ model: "small", messages: hello, stream: true });
    const one = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${service.key}\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
    const socket = connect({ port: service.port, host: "127.0.0.1" });
    socket.on("error", () => {});
    socket.write(one + one + one);
    await until("the engine is at work on three", () => service.engine.working === 3);
    socket.destroy();
    await until("all three are settled", () => service.settled.length === 3);
    assert.equal(service.engine.open, 0);
  });

  test("while its request waits in the engine's queue pays nothing", async () => {
    await using service = await startService({
      script: { tokens: tokensByHand().tokens },
      engine: { parallel: 1, queue: 1 },
    });
    const first = open(service, { stream: true });
    await until("the engine is at work", () => service.engine.working === 1);
    const second = open(service, { stream: true });
    await until("another one waits", () => service.engine.open === 2);
    const third = await service.chat();
    assert.equal((await errorOf(third)).code, "overloaded");
    second.destroy();
    await until("the one that waits is gone", () => service.engine.open === 1);
    await until("it is settled", () => service.settled.some((receipt) => receipt.ending === "client_gone"));
    assert.equal(service.settled.find((receipt) => receipt.ending === "client_gone")?.costMicro, 0);
    first.destroy();
  });
});

/** The head of a chat request with a chunked body. */
function chunked(service: TestService): string {
  return `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${service.key}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n`;
}

describe("a client that leaves while its key is looked up", () => {
  for (const goes of ["destroy", "end"] as const) {
    test(`is reported at once, even if the store is away (${goes})`, async () => {
      await using service = await startService();
      using away = holdBack(service.store, "findKey");
      // A client with half a body, and a client that has sent a second request ahead.
      const socket = connect({ port: service.port, host: "127.0.0.1" });
      socket.on("error", () => {}).resume();
      const headers = `host: x\r\nauthorization: Bearer ${service.key}\r\n`;
      socket.write(
        `GET /v1/models HTTP/1.1\r\n${headers}\r\nPOST /v1/chat/completions HTTP/1.1\r\n${headers}content-type: application/json\r\ncontent-length: 100\r\n\r\n{`,
      );
      await until("both keys are looked up", () => away.asked === 2);
      socket[goes]();
      await until("both are reported", () => service.finished.length === 2);
      assert.deepEqual(
        service.finished.map(({ path, status, code }) => [path, status, code]),
        [
          ["/v1/models", null, null],
          ["/v1/chat/completions", null, null],
        ],
      );
      away.release();
      assert.equal((await service.request("GET", "/v1/models")).status, 200);
      assert.equal(service.finished.length, 3, "each is reported once");
    });
  }

  test("or continues with invalid HTTP gets a 400 at once", async () => {
    await using service = await startService();
    using away = holdBack(service.store, "findKey");
    const socket = connect({ port: service.port, host: "127.0.0.1" });
    socket.on("error", () => {});
    socket.write(chunked(service));
    await until("its key is looked up", () => away.asked === 1);
    socket.write("no length at all\r\n");
    assert.match(await readAll(socket), /^HTTP\/1\.1 400 /);
    await until("it is reported", () => service.finished.length === 1);
    away.release();
  });

  test("or while its balance is read", async () => {
    await using service = await startService();
    using away = holdBack(service.store, "accountSnapshot");
    const client = new AbortController();
    const answer = service.request("GET", "/v1/balance", { signal: client.signal });
    await until("its balance is read", () => away.asked === 1);
    client.abort();
    await assert.rejects(answer);
    await until("it is reported", () => service.finished.length === 1);
    assert.equal(service.finished[0]?.status, null);
    away.release();
  });
});

describe("a client that reads slowly", () => {
  const longAnswers = {
    script: babble("x".repeat(1000)),
    engine: { contextWindow: 1_000_000 },
    price: { prompt: 0, completion: 0 },
  };

  test("slows down its own generation only, within bounded memory", async () => {
    await using service = await startService(longAnswers);
    const slow = open(service, { stream: true });
    slow.pause();
    await until("the generation stands still", standsStill(service));
    // More than the kernel buffers for both ends of a connection, and far less than the whole
    // answer.
    assert.ok(service.engine.tokensMade < 50_000, `${service.engine.tokensMade} kB were made ahead`);
    const other = await service.chat({ stream: true, max_tokens: 100 });
    assert.equal(readEvents(await other.text()).texts.length, 100, "another client is served meanwhile");
    slow.resume();
    const made = service.engine.tokensMade;
    await until("it goes on when the client reads on", () => service.engine.tokensMade > made + 2_000);
    slow.destroy();
  });

  test("and stops reading is dropped after the idle time", async () => {
    await using service = await startService({ ...longAnswers, streamIdleMs: 100 });
    const stuck = open(service, { stream: true });
    stuck.pause();
    await until("the generation is stopped", () => service.settled.length === 1);
    assert.equal(service.settled[0]?.ending, "client_gone");
    stuck.destroy();
  });

  test("and does not read the end of its answer is dropped too", async () => {
    const long = "x".repeat(20_000_000);
    await using service = await startService({ script: say(long), streamIdleMs: 100 });
    const stuck = open(service, { stream: false });
    stuck.pause();
    await until("the request runs", () => service.server.requests.count === 1);
    await until("the request is given up", () => service.server.requests.count === 0);
    stuck.resume();
    assert.ok((await readAll(stuck)).length < long.length, "the rest was never sent");
    assert.equal(service.settled[0]?.ending, "stop");
  });
});

describe("a silent stream", () => {
  test("sends comments from the acceptance on", async () => {
    const hand = tokensByHand();
    await using service = await startService({ script: { tokens: hand.tokens }, keepAliveMs: 20 });
    const response = await service.chat({ stream: true, max_tokens: 2 });
    assert.equal(response.status, 200, "the headers come before the first token");
    hand.give("one");
    await until("the first token is made", () => service.engine.tokensMade === 1);
    const { received, rest } = reading(response);
    await until("two comments", () => received().split("\n: keep-alive\n").length > 2);
    hand.give("two");
    const { comments, texts, done } = readEvents(await rest);
    assert.deepEqual(texts, ["one", "two"]);
    assert.ok(done);
    assert.ok(comments.length >= 2);
    assert.ok(comments.every((comment) => comment === ": keep-alive"));
  });

  test("reports a failure as an event once it has sent a comment", async () => {
    const hand = tokensByHand();
    await using service = await startService({
      script: { tokens: hand.tokens, failure: { afterTokens: 1, kind: "failed" } },
      keepAliveMs: 20,
    });
    const response = await service.chat({ stream: true, max_tokens: 5 });
    assert.equal(response.status, 200);
    hand.give("");
    const { error, done, texts } = readEvents(await response.text());
    assert.equal(error?.code, "upstream_error");
    assert.deepEqual({ done, texts }, { done: false, texts: [] });
  });

  test("sends no comments while tokens arrive", () =>
    unlessStalled(async () => {
      await using service = await startService({
        script: babble("a", { tokenDelayMs: 5 }),
        keepAliveMs: 200,
      });
      const response = await service.chat({ stream: true, max_tokens: 60 });
      assert.deepEqual(readEvents(await response.text()).comments, []);
    }));
});

describe("a service that stops", () => {
  test("finishes running requests, refuses new ones, and closes every connection", async () => {
    const hand = tokensByHand();
    await using service = await startService({ script: { tokens: hand.tokens } });
    const streamed = service.chat({ stream: true, max_tokens: 2 });
    const whole = service.chat({ max_tokens: 2 });
    await until("two are running", () => service.engine.working === 2);
    const drained = service.server.requests.drain();
    const refused = await service.chat();
    assert.equal(refused.status, 503);
    assert.equal(refused.headers.get("connection"), "close");
    assert.equal((await errorOf(refused)).code, "shutting_down");
    assert.equal(service.server.requests.count, 2);
    for (const token of ["a", "b", "c", "d"]) hand.give(token);
    const answers = [await streamed, await whole];
    for (const { status, headers } of answers)
      assert.deepEqual([status, headers.get("connection")], [200, "close"]);
    assert.ok(readEvents((await answers[0]?.text()) ?? "").done);
    await drained;
    await service[Symbol.asyncDispose]();
    await assert.rejects(service.chat(), "the listener is closed");
  });

  test("ends requests that do not finish in time with shutting_down (Menci/Floway#447)", async () => {
    const hand = tokensByHand();
    await using service = await startService({ script: { tokens: hand.tokens } });
    const streamed = service.chat({ stream: true });
    await until("one is running", () => service.engine.working === 1);
    hand.give("word");
    const response = await streamed;
    const waiting = service.chat({ stream: true });
    const whole = service.chat();
    await until("three are running", () => service.engine.working === 3);
    const closed = service.server.close();
    service.server.requests.stop();
    const { texts, error, done } = readEvents(await response.text());
    assert.deepEqual(
      { texts, code: error?.code, done },
      { texts: ["word"], code: "shutting_down", done: false },
    );
    for (const answer of [await waiting, await whole]) {
      assert.equal(answer.status, 503);
      assert.equal((await errorOf(answer)).code, "shutting_down");
    }
    await closed;
    assert.ok(service.settled.every((receipt) => receipt.ending === "shutdown"));
    await service[Symbol.asyncDispose]();
  });

  test("refuses requests that wait for a key or a balance, and reads no more of them", async () => {
    await using service = await startService();
    using balances = holdBack(service.store, "accountSnapshot");
    const balance = service.request("GET", "/v1/balance");
    await until("a balance is read", () => balances.asked === 1);
    using away = holdBack(service.store, "findKey");
    const waiting = [service.request("GET", "/v1/models"), service.chat(), service.chat({ stream: true })];
    await until("three keys are looked up", () => away.asked === 3);

    const closed = service.server.close();
    for (const answer of [await balance, ...(await Promise.all(waiting))]) {
      assert.equal(answer.status, 503);
      assert.equal(answer.headers.get("connection"), "close");
      assert.equal((await errorOf(answer)).code, "shutting_down");
    }
    await closed;
    assert.equal(service.finished.length, 4);
    away.release();
    balances.release();
    await service[Symbol.asyncDispose]();
  });

  test("lets clients that waited read their refusal", async () => {
    await using service = await startService();
    using away = holdBack(service.store, "findKey");
    const socket = connect({ port: service.port, host: "127.0.0.1" });
    socket.write(`${chunked(service)}1\r\n{\r\n`);
    await until("its key is looked up", () => away.asked === 1);
    let isClosed = false;
    const closed = service.server.close().then(() => {
      isClosed = true;
    });
    let heard = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      heard += text;
    });
    await until("it is told, in the middle of its body", () => heard.includes("shutting_down"));
    assert.equal(isClosed, false, "a connection closed over unread data would lose the answer");
    socket.write("0\r\n\r\n");
    await closed;
    away.release();
    await service[Symbol.asyncDispose]();
  });

  test("abandons running requests, and counts unread and unsettled ones separately", async () => {
    await using service = await startService({ script: say("x".repeat(20_000_000)) });
    const unread = open(service, { stream: false });
    unread.pause();
    await until("its answer is whole and settled", () => service.settled.length === 1);
    using away = holdBack(service.store, "commit");
    const heard = readAll(open(service, { stream: true }));
    await until("another one waits for the store", () => service.server.requests.count === 2);

    const drained = service.server.requests.drain();
    service.server.requests.stop();
    assert.deepEqual(service.server.requests.abandon(), { unread: 1, unsettled: 1 });
    await drained;
    await service.server.close();
    unread.resume();
    assert.ok((await readAll(unread)).length < 20_000_000, "the rest was never sent");
    assert.equal(await heard, "");
    away.release();
    await until("the ledger was not cut off", () => service.settled.length === 2);
    await service[Symbol.asyncDispose]();
  });

  test("closes connections after each answer as soon as it is not ready", async () => {
    const hand = tokensByHand();
    await using service = await startService({ script: { tokens: hand.tokens } });
    const connectionOf = ({ headers }: Response) => headers.get("connection");
    assert.equal(connectionOf(await service.request("GET", "/v1/models")), "keep-alive");
    // Started before `retire`, answered after it.
    const whole = service.chat({ max_tokens: 1 });
    await until("one is running", () => service.engine.working === 1);
    service.server.requests.retire();
    const streamed = service.chat({ stream: true, max_tokens: 1 });
    await until("another one is running, though it came late", () => service.engine.working === 2);
    hand.give("a");
    hand.give("b");
    for (const answer of [
      await whole,
      await streamed,
      await service.request("GET", "/v1/models"),
      await service.request("GET", "/v1/nothing"),
    ]) {
      assert.equal(connectionOf(answer), "close");
      await answer.text();
    }
    assert.equal(service.server.requests.draining, false);
  });

  test("does not wait for connections that are idle or in the middle of a body", async () => {
    await using service = await startService();
    const idle = connect({ port: service.port, host: "127.0.0.1" });
    await once(idle, "connect");
    const half = connect({ port: service.port, host: "127.0.0.1" });
    half.write(`${chunked(service)}1\r\n{\r\n`);
    await until("half a body has come", () => service.server.uploads.count === 1);
    await (await service.chat()).text();
    const closed = [once(idle, "close"), once(half, "close")];
    for (const socket of [idle, half]) socket.on("error", () => {}).resume();
    await service[Symbol.asyncDispose]();
    await Promise.all(closed);
  });
});
