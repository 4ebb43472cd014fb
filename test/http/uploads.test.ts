/**
 * Limits on request bodies: their number, bytes and speed; and refusals that leave a body unread.
 */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { describe, test } from "node:test";
import { spareUploads } from "../../src/http/public/uploads.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { parseAnswer, type RawAnswer, readAll } from "../fixtures/raw-http.ts";
import { babble, startService, type TestService } from "../fixtures/service.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { until } from "../fixtures/until.ts";

interface Begun {
  socket: Socket;
  /** Resolves with the first answer when the connection is closed. */
  answer: Promise<RawAnswer>;
}

const chat = "/v1/chat/completions";
const mib = 1024 * 1024;
const goodBody = '{"model":"small","messages":[{"role":"user","content":"x"}]}';

/** Sends the head of a chat request and a part of its body. */
function begin(service: TestService, header: string, body = "", key = service.key): Begun {
  const socket = connect({ port: service.port, host: "127.0.0.1" });
  const answer = readAnswer(socket);
  socket.write(
    `POST ${chat} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\n${header}\r\n\r\n${body}`,
  );
  return { socket, answer };
}

/**
 * Returns the first answer, and then closes the connection like clients that get `connection:
 * close`.
 */
async function readAnswer(socket: Socket): Promise<RawAnswer> {
  let received = "";
  socket.on("data", (chunk: Buffer | string) => {
    received += chunk;
    const { headers, body } = parseAnswer(received);
    if (body.length > 0 && body.length === Number(headers.get("content-length"))) socket.destroy();
  });
  return parseAnswer(await readAll(socket));
}

const announced = (bytes: number) => `content-length: ${bytes}`;

function codeOf({ body }: RawAnswer): string {
  return JSON.parse(body).error.code;
}

async function leave(uploads: readonly Begun[]): Promise<void> {
  for (const { socket } of uploads) socket.destroy();
  await Promise.all(uploads.map(({ answer }) => answer));
}

/** Their answers take 15 s, in which the other tests run. */
const unfinished = unfinishedHeads();
// The test that awaits it reports its failure.
unfinished.catch(() => {});

async function unfinishedHeads(): Promise<{ answers: string[]; ms: number }> {
  await using service = await startService();
  const passedMs = startOwnTime();
  const opened = ["", "GET /v1/models HTTP/1.1\r\nhost: x\r\n"].map(async (bytes) => {
    const socket = connect({ port: service.port, host: "127.0.0.1" });
    socket.write(bytes);
    return await readAll(socket);
  });
  return { answers: await Promise.all(opened), ms: passedMs() };
}

describe("bytes of bodies in flight", () => {
  test("150 unfinished uploads of an account with one concurrent request reserve only a few places", async () => {
    await using service = await startService({ plan: { limits: { concurrent: 1 } } });
    const uploads = Array.from({ length: 150 }, () => begin(service, announced(4 * mib), "x"));
    // Some are refused for the bytes, others for the number, all before their body.
    const refused = uploads.map(({ answer }) => answer.then((given) => given.status));
    let answered = 0;
    for (const each of refused) void each.then(() => answered++);
    await until(
      "all but the admitted ones are refused",
      () => answered + service.server.uploads.count === 150,
    );
    assert.ok(service.server.uploads.count <= 1 + spareUploads);
    assert.ok(service.server.uploads.bytes <= 16 * mib, `${service.server.uploads.bytes} bytes`);
    await leave(uploads);
    await until("all is given back", () => service.server.uploads.bytes === 0);
    assert.equal(service.server.uploads.count, 0);
    assert.equal((await service.chat()).status, 200);
  });

  test("limits the uploads of an account to its concurrent requests and a few more", async () => {
    await using service = await startService({ plan: { limits: { concurrent: 2 } } });
    const admitted = Array.from({ length: 2 + spareUploads }, () => begin(service, announced(100)));
    await until("all are admitted", () => service.server.uploads.count === admitted.length);
    const refused = await begin(service, announced(100)).answer;
    assert.equal(refused.status, 429);
    assert.equal(codeOf(refused), "concurrency_limit_exceeded");
    assert.match(refused.headers.get("retry-after") ?? "", /^\d+$/);
    assert.equal(refused.headers.get("connection"), "close");
    await leave(admitted);
    await until("the places are free again", () => service.server.uploads.count === 0);
  });

  test("limits an account to a quarter, whatever its key, and answers overloaded beyond", async () => {
    await using service = await startService({ uploadBytesMax: 8 * mib, bodyBytesMax: mib });
    const one = begin(service, announced(mib));
    await until("the first is admitted", () => service.server.uploads.count === 1);
    const two = begin(service, announced(mib));
    await until("the second is admitted", () => service.server.uploads.count === 2);
    const sameAccount = await begin(service, announced(1), "", await service.addKey()).answer;
    assert.equal(sameAccount.status, 503);
    assert.equal(codeOf(sameAccount), "overloaded");
    assert.match(sameAccount.headers.get("retry-after") ?? "", /^\d+$/);
    assert.match(JSON.parse(sameAccount.body).error.message, /this account/);
    await leave([one, two]);
    await until("all is given back", () => service.server.uploads.bytes === 0);
  });

  test("limits all accounts together to the total", async () => {
    await using service = await startService({ uploadBytesMax: 2 * mib, bodyBytesMax: mib });
    const keys: string[] = [];
    for (const account of ["ada", "ben", "cy"]) {
      await service.ledger.apply({ kind: "open", account, plan: "test", by: "test" });
      keys.push(await service.addKey({ account }));
    }
    const [ada = "", ben = "", cy = ""] = keys;
    const admitted = [begin(service, announced(mib), "", ada), begin(service, announced(mib), "", ben)];
    await until("two are admitted", () => service.server.uploads.count === 2);
    const refused = await begin(service, announced(1), "", cy).answer;
    assert.equal(codeOf(refused), "overloaded");
    assert.match(JSON.parse(refused.body).error.message, /all callers/);
    await leave(admitted);
    await until("all is given back", () => service.server.uploads.bytes === 0);
  });

  test("reserves bytes of a chunked body as it grows", async () => {
    await using service = await startService({ uploadBytesMax: 2 * mib, bodyBytesMax: mib });
    const chunk = (length: number) => `${length.toString(16)}\r\n${" ".repeat(length)}\r\n`;
    const growing = begin(service, "transfer-encoding: chunked", chunk(1000));
    await until("its first bytes are reserved", () => service.server.uploads.bytes >= 1000);
    assert.ok(service.server.uploads.bytes < mib / 4);
    const other = begin(service, announced(mib / 2));
    await until("another one is admitted", () => service.server.uploads.count === 2);
    growing.socket.write(chunk(700_000));
    const refused = await growing.answer;
    assert.equal(refused.status, 503);
    assert.equal(codeOf(refused), "overloaded");
    assert.equal(service.server.uploads.bytes, mib / 2, "what it had is given back");
    await leave([other]);
  });

  test("ends a reservation when the request is accepted", async () => {
    await using service = await startService({ script: babble("word ", { tokenDelayMs: 2 }) });
    const away = new AbortController();
    const running = await service.chat({ stream: true }, { signal: away.signal });
    assert.equal(running.status, 200);
    assert.deepEqual([service.server.uploads.count, service.server.uploads.bytes], [0, 0]);
    assert.match(await service.metrics.text(), /^inkwell_upload_bytes 0$/m);
    away.abort();
    await until("it is settled", () => service.settled.length === 1);
  });

  test("ends a reservation with every refusal", async () => {
    await using service = await startService({
      plan: {
        base: { credits: 0, every: "P1D", align: "opening" },
        overage: { credits: 0, every: "P1D", align: "opening" },
      },
    });
    for (const body of ["{", "{}", goodBody, goodBody.replace("small", "none")]) {
      await (await service.request("POST", chat, { body })).text();
      assert.deepEqual([service.server.uploads.count, service.server.uploads.bytes], [0, 0], body);
    }
  });

  test("checks the upload limits right after the key, before size and media type", async () => {
    await using service = await startService({ plan: { limits: { concurrent: 1 } }, bodyBytesMax: 1000 });
    const admitted = Array.from({ length: 1 + spareUploads }, () => begin(service, announced(100)));
    await until("all are admitted", () => service.server.uploads.count === admitted.length);
    assert.equal((await begin(service, announced(100), "", "nobody").answer).status, 401);
    assert.equal((await begin(service, announced(5000)).answer).status, 429);
    assert.equal((await service.request("GET", "/v1/balance")).status, 200, "it is for chat requests only");
    await leave(admitted);
    await until("the places are free again", () => service.server.uploads.count === 0);
    assert.equal((await begin(service, announced(5000)).answer).status, 413);
  });
});

describe("a slow body", () => {
  const times = { graceMs: 100, bytesPerSecondMin: 1_000_000 };

  for (const [how, header] of [
    ["of known length", announced(1000)],
    ["in chunks", "transfer-encoding: chunked"],
  ] as const) {
    test(`${how} is answered 408, and its connection closes`, async () => {
      await using service = await startService({ uploadTimes: times });
      const { socket, answer } = begin(service, header);
      const drip = setInterval(() => socket.write(header.startsWith("content") ? "x" : "1\r\nx\r\n"), 10);
      const { status, headers, body } = await answer;
      clearInterval(drip);
      assert.equal(status, 408);
      assert.equal(headers.get("connection"), "close");
      const { error } = JSON.parse(body);
      assert.equal(error.code, "request_timeout");
      assert.equal(error.type, "invalid_request_error");
      assert.match(error.message, /at least 1000000 bytes per second/);
      assert.equal(service.finished[0]?.code, "request_timeout");
      assert.equal(service.server.uploads.bytes, 0);
    });
  }

  test("at the minimum rate may take longer than the grace time, up to the total time", () =>
    unlessStalled(async () => {
      await using service = await startService({
        uploadTimes: { graceMs: 50, bytesPerSecondMin: 100 },
        uploadMs: 3000,
      });
      // 300 bytes count for three seconds.
      const { socket, answer } = begin(service, announced(goodBody.length + 301), " ".repeat(300));
      await new Promise((resolve) => setTimeout(resolve, 300));
      socket.write(`${goodBody}`);
      const { status, body } = await answer;
      assert.equal(status, 408, "the last byte never came");
      assert.match(JSON.parse(body).error.message, new RegExp(`${goodBody.length + 300} bytes so far`));
      assert.match(JSON.parse(body).error.message, /within 3 s/);
    }));

  test("that is complete in time is answered", () =>
    unlessStalled(async () => {
      await using service = await startService({ uploadTimes: { graceMs: 50, bytesPerSecondMin: 10 } });
      const { socket, answer } = begin(
        service,
        `${announced(goodBody.length)}\r\nconnection: close`,
        goodBody.slice(0, 30),
      );
      await new Promise((resolve) => setTimeout(resolve, 200));
      socket.write(goodBody.slice(30));
      assert.equal((await answer).status, 200);
    }));
});

describe("a refusal that leaves a body unread", () => {
  test("closes its connection within seconds", async () => {
    await using service = await startService({ bodyBytesMax: 1000 });
    const rest = "host: x\r\ncontent-length: 500\r\n\r\nx";
    const key = `authorization: Bearer ${service.key}\r\n`;
    const rows: [bytes: string, status: number][] = [
      [`POST ${chat} HTTP/1.1\r\n${rest}`, 401],
      [`POST /nowhere HTTP/1.1\r\n${rest}`, 404],
      [`PUT /v1/models HTTP/1.1\r\n${rest}`, 405],
      [`POST ${chat} HTTP/1.1\r\n${key}${rest.replace("500", "5000")}`, 413],
      [`POST ${chat} HTTP/1.1\r\n${key}${rest}`, 415],
      [`POST ${chat} HTTP/1.1\r\n${key}expect: 100-continue\r\n${rest.replace(/x$/, "")}`, 415],
      // Not a refusal, but nobody reads this body either.
      [`GET /v1/models HTTP/1.1\r\n${key}${rest}`, 200],
    ];
    await Promise.all(
      rows.map(async ([bytes, status]) => {
        const passedMs = startOwnTime();
        const socket = connect({ port: service.port, host: "127.0.0.1" });
        socket.write(bytes);
        const drip = setInterval(() => socket.write("x"), 500);
        socket.once("close", () => clearInterval(drip));
        const answer = parseAnswer(await readAll(socket));
        assert.equal(answer.status, status, bytes);
        assert.equal(answer.headers.get("connection"), "close", bytes);
        // Five seconds to read the answer.
        assert.ok(passedMs() < 15_000, bytes);
      }),
    );
  });

  test("keeps the connection if the body is complete", async () => {
    await using service = await startService();
    const socket = connect({ port: service.port, host: "127.0.0.1" });
    await once(socket, "connect");
    const head = "host: x\r\ncontent-length: 3\r\n";
    socket.write(`POST ${chat} HTTP/1.1\r\n${head}\r\nabc`);
    const [first]: Buffer[] = await once(socket, "data");
    assert.match(String(first), /^HTTP\/1\.1 401 .*connection: keep-alive/is);
    socket.write(`POST ${chat} HTTP/1.1\r\n${head}connection: close\r\n\r\nabc`);
    assert.equal(parseAnswer(await readAll(socket)).status, 401);
  });
});

describe("headers that do not end", () => {
  test("are answered 408 within seconds, and so is a connection that sends nothing", async () => {
    const { answers, ms } = await unfinished;
    for (const received of answers) assert.match(received, /^HTTP\/1\.1 408 /);
    assert.ok(ms < 40_000, `${ms} ms`);
  });
});

describe("bodies in chunks", () => {
  const tiny = (body: string) => `${[...body].map((byte) => `1\r\n${byte}\r\n`).join("")}`;

  test("accepts a body in some thousand chunks of one byte", async () => {
    await using service = await startService();
    const body = goodBody.padEnd(10_000, " ");
    const { answer } = begin(service, "transfer-encoding: chunked", `${tiny(body)}0\r\n\r\n`);
    assert.equal((await answer).status, 200);
  });

  test("refuses a body in more chunks than a client needs, before it has ended", async () => {
    await using service = await startService();
    const { answer } = begin(service, "transfer-encoding: chunked", tiny(" ".repeat(30_000)));
    const refused = await answer;
    assert.equal(refused.status, 413);
    assert.match(JSON.parse(refused.body).error.message, /too many small chunks/);
    assert.equal(service.server.uploads.bytes, 0);
  });

  const endings: [name: string, body: string][] = [
    ["one chunk", `bb8\r\n${" ".repeat(0xbb8)}\r\n0\r\n\r\n`],
    ["tiny chunks", `${tiny(" ".repeat(3_000))}0\r\n\r\n`],
  ];
  for (const [name, body] of endings) {
    test(`reads the next request of a connection whose body, in ${name}, was refused as it ended`, async () => {
      await using service = await startService({ bodyBytesMax: 2_048 });
      const socket = connect({ port: service.port, host: "127.0.0.1" });
      const authorization = `host: x\r\nauthorization: Bearer ${service.key}\r\n`;
      let received = "";
      socket.on("data", (text) => {
        received += text;
      });
      const head = `POST ${chat} HTTP/1.1\r\n${authorization}content-type: application/json\r\n`;
      socket.write(`${head}transfer-encoding: chunked\r\n\r\n`);
      await until("the body is waited for", () => service.server.uploads.count === 1);
      socket.write(body);
      await until("it is refused", () => received.includes("request_too_large"));
      assert.match(received, /connection: keep-alive/i);
      socket.write(`GET /v1/models HTTP/1.1\r\n${authorization}connection: close\r\n\r\n`);
      await once(socket, "close");
      const statuses = [...received.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
      assert.deepEqual(statuses, ["413", "200"]);
    });
  }
});
