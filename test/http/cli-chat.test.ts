/**
 * `inkwell chat` against a stand-in for the service, so that every way an answer can go is met;
 * and against the service itself, so that the two understand each other.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { databaseText } from "../../src/config/database.ts";
import { loadConfig } from "../../src/config/load.ts";
import { Ledger } from "../../src/ledger/ledger.ts";
import { writeOperatorAddress } from "../../src/operator-address.ts";
import { openPipe, openTerminal, type Ran, runCli, signal } from "../fixtures/cli-host.ts";
import { operatorToken, startOperator } from "../fixtures/operator.ts";
import { babble, startService, type TestService } from "../fixtures/service.ts";

const cwd = mkdtempSync(path.join(tmpdir(), "inkwell-chat-"));
const nothingOpened = { openStore: () => assert.fail("no database is opened") };
const key = "ink_of_this_test";
const requests: { path: string; authorization: string | undefined; body: string }[] = [];
let url = "";
/** Resolves when a client has left an answer before its end. */
let gone = Promise.withResolvers<void>();

/** The last message decides how the service responds. */
function answer(wish: string, response: ServerResponse): void {
  const chunk = (fields: object) => response.write(`data: ${JSON.stringify(fields)}\r\n\r\n`);
  if (wish === "refuse") {
    const error = {
      message: "Your balance is\nempty.",
      type: "insufficient_quota",
      param: null,
      code: "insufficient_credits",
    };
    response.writeHead(402, { "content-type": "application/json" }).end(JSON.stringify({ error }));
    return;
  }
  if (wish === "teapot") {
    response.writeHead(418).end("<html>");
    return;
  }
  response.writeHead(200, { "content-type": "text/event-stream" });
  chunk({ choices: [{ delta: { role: "assistant", content: "" }, finish_reason: null }], usage: null });
  chunk({ choices: [{ delta: { content: "Good \u001b[2J" }, finish_reason: null }], usage: null });
  if (wish === "fail") {
    chunk({
      error: { message: "The engine failed.", type: "server_error", param: null, code: "upstream_error" },
    });
    response.end();
    return;
  }
  if (wish === "break off") {
    response.end();
    return;
  }
  if (wish === "wait") {
    response.on("close", () => gone.resolve());
    return;
  }
  response.write(": keep-alive\n");
  chunk({ choices: [{ delta: { content: "morning" }, finish_reason: null }], usage: null });
  chunk({ choices: [{ delta: {}, finish_reason: wish === "long" ? "length" : "stop" }], usage: null });
  chunk({ choices: [], usage: { prompt_tokens: 100, completion_tokens: 7 } });
  if (wish !== "free") response.write(": x-inkwell-cost: 0.00067, x-inkwell-balance: 1233.5\n");
  response.end("data: [DONE]\n\n");
}

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  let body = "";
  for await (const chunk of request) body += String(chunk);
  requests.push({ path: request.url ?? "", authorization: request.headers.authorization, body });
  const json = (document: object) =>
    response.setHeader("content-type", "application/json").end(JSON.stringify(document));
  if (request.url === "/v1/models") {
    json({ data: [{ id: "small" }, { id: "large" }] });
  } else {
    const messages: unknown = JSON.parse(body).messages;
    const last: unknown = Array.isArray(messages) ? messages.at(-1)?.content : undefined;
    answer(String(last), response);
  }
}

const server = createServer((request, response) => void handle(request, response));
before(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  url = `http://127.0.0.1:${address.port}`;
});
after(() => {
  server.close();
  server.closeAllConnections();
  rmSync(cwd, { recursive: true });
});

async function chat(stdin: string, ...argv: string[]): Promise<Ran> {
  requests.length = 0;
  return await runCli(["chat", "--url", url, "--key", key, ...argv], { cwd, stdin });
}

const lastBody = () =>
  JSON.parse(requests.findLast(({ path: each }) => each === "/v1/chat/completions")?.body ?? "{}");

describe("inkwell chat, piped", () => {
  test("asks the first model for a stream, writes the answer to stdout and its cost to stderr", async () => {
    const ran = await chat("hello\n");
    assert.deepEqual(ran, {
      code: 0,
      stdout: "Good \\u001b[2Jmorning\n",
      stderr: "0.00067 credits · 1233.5 left\n",
    });
    assert.ok(requests.every(({ authorization }) => authorization === `Bearer ${key}`));
    assert.deepEqual(lastBody(), {
      model: "small",
      messages: [{ role: "user", content: "hello" }],
      stream: true,
      stream_options: { include_usage: true },
    });
  });

  test("sends the model and the limit that the command line names", async () => {
    await chat("hello\n", "large", "--max-tokens", "100");
    const { model, max_tokens } = lastBody();
    assert.deepEqual({ model, max_tokens }, { model: "large", max_tokens: 100 });
  });

  test("sends each line as a turn, with the turns before that got an answer", async () => {
    const ran = await chat("one\nrefuse\n\n/two\n");
    assert.equal(ran.code, 1);
    assert.equal(ran.stdout, "Good \\u001b[2Jmorning\n".repeat(2));
    assert.deepEqual(lastBody().messages, [
      { role: "user", content: "one" },
      { role: "assistant", content: "Good \u001b[2Jmorning" },
      { role: "user", content: "/two" },
    ]);
  });

  for (const [wish, rule, code, stderr] of [
    ["refuse", "shows a refusal in one line", 1, /^Your balance is empty\. \(insufficient_credits\)\n$/],
    ["fail", "shows an error in the middle of a stream", 1, /^The engine failed\. \(upstream_error\)\n$/],
    ["break off", "reports a stream without an end", 1, /^The answer broke off before its end\.\n$/],
    ["teapot", "reports a response that is not JSON", 1, /not JSON\. Is the URL right\?/],
    ["long", "shows that an answer was cut off", 0, / left · cut off: length\n$/],
    ["free", "says so if the service reports no cost", 0, /^cost unknown\n$/],
  ] as const) {
    test(rule, async () => {
      const ran = await chat(`${wish}\n`);
      assert.match(ran.stderr, stderr);
      assert.equal(ran.code, code);
    });
  }

  test("has no document for --json", async () => {
    const ran = await chat("hello\n", "--json");
    assert.equal(JSON.parse(ran.stdout).error.code, "refused");
    assert.deepEqual([ran.code, requests], [1, []]);
  });

  for (const [name, code] of [["SIGINT", 130] as const, ["SIGTERM", 143] as const]) {
    test(`exits at ${name} without the remaining lines`, async () => {
      gone = Promise.withResolvers();
      const session = openPipe(["chat", "--url", url, "--key", key], { cwd, stdin: "wait\nhello\n" });
      await session.shows("Good");
      signal(name);
      await session.shows("Stopped.");
      await gone.promise;
      assert.equal(await session.ended, code);
      assert.deepEqual(lastBody().messages, [{ role: "user", content: "wait" }]);
    });
  }

  test("uses the key in INKWELL_API_KEY, and requires one for another URL", async () => {
    requests.length = 0;
    const argv = ["chat", "--url", `${url}/v1/`];
    await runCli(argv, { cwd, stdin: "hello\n", env: { INKWELL_API_KEY: "from-env" } });
    assert.equal(requests[0]?.authorization, "Bearer from-env");
    const ran = await runCli(argv, { cwd, stdin: "hello\n" });
    assert.equal(ran.code, 1);
    assert.match(ran.stderr, /needs a key of its own: --key, or INKWELL_API_KEY/);
    const bad = await runCli([...argv, "--key", "bad key€"], { cwd, stdin: "hello\n" });
    assert.equal(bad.stderr, "The API key has characters that no key has, such as a space or a line end.\n");
  });
});

describe("inkwell chat, at a terminal", () => {
  const open = () => openTerminal(["chat", "--url", url, "--key", key], { cwd });

  test("prompts, shows answers and refusals, and exits on Ctrl-C at the prompt", async () => {
    const session = open();
    await session.shows("Talking to small");
    await session.answers("hello\r", "morning\n", "0.00067 credits", "> ");
    await session.answers("refuse\r", "Your balance is empty.", "> ");
    session.type("\u0003");
    assert.equal(await session.ended, 0);
  });

  test("Ctrl-C stops the answer, not the program", async () => {
    gone = Promise.withResolvers();
    const session = open();
    await session.shows("> ");
    await session.answers("wait\r", "Good");
    await session.answers("\u0003", "Stopped. The prompt and the tokens made until now are charged.");
    await gone.promise;
    await session.shows("> ");
    await session.answers("hello\r", "morning\n", "> ");
    assert.deepEqual(lastBody().messages, [
      { role: "user", content: "wait" },
      { role: "assistant", content: "Good \u001b[2J" },
      { role: "user", content: "hello" },
    ]);
    session.type("\u0004");
    assert.equal(await session.ended, 0);
  });

  test("Ctrl-D stops the answer and exits without lines typed ahead", async () => {
    gone = Promise.withResolvers();
    const session = open();
    await session.shows("> ");
    await session.answers("wait\r", "Good");
    session.type("hello\r");
    session.type("\u0004");
    await gone.promise;
    assert.equal(await session.ended, 0);
    assert.deepEqual(lastBody().messages.at(-1), { role: "user", content: "wait" });
  });

  test("exits at SIGTERM with the code of the signal", async () => {
    const session = open();
    await session.shows("> ");
    signal("SIGTERM");
    assert.equal(await session.ended, 143);
  });
});

describe("inkwell chat and the service", () => {
  /** The command finds the service by the address in its folder, not by its configuration. */
  async function beside(service: TestService, api = service.url) {
    const folder = mkdtempSync(path.join(cwd, "beside-"));
    const env = { INKWELL_DATA: folder, INKWELL_PORT: "1", INKWELL_OPERATOR_TOKEN: operatorToken };
    const database = databaseText(loadConfig({ cwd, env }).database);
    const operator = await startOperator(service);
    writeOperatorAddress(folder, { url: operator.url, api, pid: process.pid, database });
    return {
      cwd,
      env,
      services: nothingOpened,
      [Symbol.asyncDispose]: () => operator[Symbol.asyncDispose](),
    };
  }

  test("agree on the cost, with a temporary key that is revoked", async () => {
    await using service = await startService();
    await using at = await beside(service);
    const ran = await runCli(["chat", "--account", "test"], {
      ...at,
      stdin: "Good morning to you\n",
    });
    assert.equal(ran.code, 0, ran.stderr);
    assert.equal(ran.stdout, "Hello world\n");
    const [receipt] = await service.store.usage({ account: "test", limit: 1 });
    assert.ok(receipt !== undefined);
    const { credits, left } =
      /^(?<credits>[\d.]+) credits · (?<left>[\d.]+) left\n$/.exec(ran.stderr)?.groups ?? {};
    assert.equal(Number(credits) * 1_000_000, receipt.costMicro);
    assert.equal(Number(left), 1200 - Number(credits));
    const own = (await service.store.keys("test")).find(({ name }) => name === "chat");
    assert.equal(own?.id, receipt.key);
    assert.ok(own.revokedMs !== null);
    assert.ok(Math.abs((own.expiresMs ?? 0) - own.createdMs - 86_400_000) < 60_000);
  });

  test("exits on a signal before the first line and revokes the temporary key", async () => {
    await using service = await startService();
    const asked = Promise.withResolvers<void>();
    const silent = createServer(() => asked.resolve());
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    const address = silent.address();
    assert.ok(address !== null && typeof address === "object");
    try {
      await using at = await beside(service, `http://127.0.0.1:${address.port}`);
      const session = openPipe(["chat", "--account", "test"], { ...at, stdin: "hello\n" });
      await asked.promise;
      signal("SIGINT");
      assert.equal(await session.ended, 1);
      const own = (await service.store.keys("test")).find(({ name }) => name === "chat");
      assert.ok(own !== undefined && own.revokedMs !== null);
    } finally {
      silent.close();
      silent.closeAllConnections();
    }
  });

  test("a terminal that closes ends the conversation, and its key is revoked", async () => {
    await using service = await startService({ script: babble("word ") });
    let hungUp = false;
    /** Whether a further SIGHUP could have ended the process at a commit after the first. */
    const unheard: boolean[] = [];
    const store = new Proxy(service.store, {
      get(target, name) {
        if (name === "commit" && hungUp) unheard.push(process.listenerCount("SIGHUP") === 0);
        const value: unknown = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
    await using at = await beside({ ...service, store, ledger: new Ledger(store) });
    const session = openTerminal(["chat", "--account", "test"], at);
    await session.shows("> ");
    await session.answers("on and on\r", "word word");
    hungUp = true;
    session.hangUp();
    assert.equal(await session.ended, 129);
    assert.ok(unheard.length > 0 && !unheard.includes(true), String(unheard));
    const own = (await service.store.keys("test")).find(({ name }) => name === "chat");
    assert.ok(own !== undefined && own.revokedMs !== null);
  });

  test("Ctrl-C stops the decoder, and the tokens made are charged", async () => {
    await using service = await startService({ script: babble("word ") });
    await using at = await beside(service);
    const session = openTerminal(["chat", "--account", "test"], at);
    await session.shows("> ");
    await session.answers("on and on\r", "word word");
    await session.answers("\u0003", "Stopped.");
    session.type("\u0004");
    assert.equal(await session.ended, 0);
    await service.server.close();
    const [receipt] = await service.store.usage({ account: "test", limit: 1 });
    assert.equal(receipt?.ending, "client_gone");
    assert.ok(receipt.completionTokens >= 2);
  });

  test("finds the service of a port that was chosen, and makes no key for nothing", async () => {
    await using service = await startService();
    await using at = await beside(service);
    const unknown = await runCli(["chat", "--account", "nobody"], { ...at, stdin: "hello\n" });
    assert.match(unknown.stderr, /no account nobody/);
    const env = { ...at.env, INKWELL_PORT: "0", INKWELL_API_KEY: service.key };
    assert.equal((await runCli(["chat"], { ...at, env, stdin: "hello\n" })).stdout, "Hello world\n");
    rmSync(path.join(at.env.INKWELL_DATA, "operator-address"));
    const nobody = await runCli(["chat", "--account", "test"], { ...at, stdin: "hello\n" });
    assert.match(
      nobody.stderr,
      /^No service runs here, and this needs one\. Start it with .*serve", or name one with --url and --key\./,
    );
    const keys = await service.store.keys("test");
    assert.ok(keys.every(({ name }) => name !== "chat"));
  });
});
