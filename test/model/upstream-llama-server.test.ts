/**
 * A real llama-server as the upstream. Set LLAMA_SERVER to its binary, and LLAMA_SERVER_MODEL to a
 * model other than the miniature. Skipped without LLAMA_SERVER; test/http/upstream-*.test.ts cover
 * the rest.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { UpstreamEngine } from "../../src/engines/upstream/engine.ts";
import { readEvents } from "../fixtures/events.ts";
import { freePort, miniature } from "../fixtures/program.ts";
import { jsonOf, startService, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";
import { charged } from "../fixtures/upstream.ts";

const binary = process.env.LLAMA_SERVER;
const skip = binary === undefined ? "LLAMA_SERVER does not name a llama-server binary" : false;

interface Completion {
  choices: {
    message: { content: string };
    finish_reason: string;
    logprobs?: { content: { top_logprobs: unknown[] }[] };
  }[];
  usage: { prompt_tokens: number; completion_tokens: number };
}

describe("llama-server as the upstream", { skip }, () => {
  let server: ChildProcess;
  let origin = "";
  let engine: UpstreamEngine;
  let service: TestService;

  before(async () => {
    const port = await freePort();
    origin = `http://127.0.0.1:${port}`;
    const model = process.env.LLAMA_SERVER_MODEL ?? miniature;
    const flags = `--host 127.0.0.1 --port ${port} --threads 1 --threads-batch 1 -c 8192 -np 4`.split(" ");
    server = spawn(binary ?? "", ["-m", model, ...flags], { stdio: "ignore" });
    await until("llama-server is up", () =>
      fetch(`${origin}/health`).then(
        ({ status }) => status === 200,
        () => false,
      ),
    );
    engine = new UpstreamEngine({
      urls: [`${origin}/v1`],
      key: null,
      model: "any",
      dialect: "llama-server",
      contextWindow: 2048,
      parallel: 4,
      reserved: 0,
      queueMax: 16,
      times: { connectMs: 5000, headersMs: 60_000, idleMs: 60_000 },
      reasoning: null,
      log: { info: () => {}, warn: (fields, message) => warnings.push({ fields, message }), error: () => {} },
    });
    service = await startService({ otherEngines: { big: engine } });
  });
  const warnings: unknown[] = [];
  after(async () => {
    await service[Symbol.asyncDispose]();
    await engine.close();
    server.kill("SIGKILL");
  });

  const receiptOf = (response: Response) => service.receipt(response.headers.get("x-request-id") ?? "");
  const say = (content: string) => [{ role: "user", content }];
  /** Slots that are at work over there. */
  const busy = async () => {
    const slots = await jsonOf<{ is_processing: boolean }[]>(await fetch(`${origin}/slots`));
    return slots.filter(({ is_processing }) => is_processing).length;
  };

  test("an answer has its text and exact usage, and its prompt is charged as counted", async () => {
    const engineCount = await engine.prepare(
      { accountId: "a", messages: [{ role: "user", content: "What is ink?" }], reasoning: {} },
      new AbortController().signal,
    );
    const response = await service.chat({ model: "big", messages: say("What is ink?"), max_tokens: 20 });
    const answer = await jsonOf<Completion>(response);
    assert.equal(response.status, 200);
    assert.notEqual(answer.choices[0]?.message.content, "");
    const row = charged(await receiptOf(response));
    assert.equal(row.estimated, false);
    assert.equal(row.promptTokens, engineCount.promptTokens);
    assert.equal(row.completionTokens, answer.usage.completion_tokens);
    assert.deepEqual(warnings, []);
  });

  test("a streamed answer has exactly the requested tokens", async () => {
    const response = await service.chat({
      model: "big",
      messages: say("endless"),
      max_tokens: 40,
      stream: true,
      stream_options: { include_usage: true },
    });
    const events = readEvents(await response.text());
    assert.equal(events.chunks.at(-2)?.choices[0]?.finish_reason, "length");
    assert.equal(events.chunks.at(-1)?.usage?.completion_tokens, 40);
    assert.equal(charged(await receiptOf(response)).estimated, false);
  });

  test("log-probabilities with no alternatives, and with two", async () => {
    for (const alternatives of [0, 2]) {
      const response = await service.chat({
        model: "big",
        messages: say("What is ink?"),
        max_tokens: 5,
        logprobs: true,
        top_logprobs: alternatives,
      });
      const { choices } = await jsonOf<Completion>(response);
      const content = choices[0]?.logprobs?.content ?? [];
      assert.ok(content.length > 0);
      for (const each of content) assert.equal(each.top_logprobs.length, alternatives);
    }
  });

  test("accepts two answers in a row, a late system message and half a character", async () => {
    const response = await service.chat({
      model: "big",
      messages: [
        { role: "user", content: "a\ud83d" },
        { role: "assistant", content: "b" },
        { role: "developer", content: "c" },
        { role: "assistant", content: "d" },
        { role: "assistant", content: "e" },
      ],
      max_tokens: 5,
    });
    assert.equal(response.status, 200, await response.text());
  });

  test("does not send a stop sequence", async () => {
    const plain = await jsonOf<Completion>(
      await service.chat({ model: "big", messages: say("What is ink?"), max_tokens: 30, temperature: 0 }),
    );
    const words = plain.choices[0]?.message.content.split(" ") ?? [];
    const stop = words[2] ?? "";
    assert.notEqual(stop, "");
    const stopped = await jsonOf<Completion>(
      await service.chat({
        model: "big",
        messages: say("What is ink?"),
        max_tokens: 30,
        temperature: 0,
        stop,
      }),
    );
    assert.ok(!stopped.choices[0]?.message.content.includes(stop));
    assert.equal(stopped.choices[0]?.finish_reason, "stop");
  });

  test("an answer that ends with the start of a stop sequence is complete (ggml-org/llama.cpp#15007)", async () => {
    const request = { model: "big", messages: say("What is ink?"), max_tokens: 12, temperature: 0 };
    const plain = await jsonOf<Completion>(await service.chat(request));
    const content = plain.choices[0]?.message.content ?? "";
    assert.equal(plain.choices[0]?.finish_reason, "length");
    const stop = `${content.slice(-6)} and then something else`;
    const answer = await jsonOf<Completion>(await service.chat({ ...request, stop }));
    assert.equal(answer.choices[0]?.message.content, content);
    assert.equal(answer.choices[0]?.finish_reason, "length");
    assert.equal(answer.usage.completion_tokens, plain.usage.completion_tokens);
  });

  test("an answer that Inkwell ends at a stop sequence is charged exactly", async () => {
    const messages = say("What is ink?");
    const plain = await jsonOf<Completion>(
      await service.chat({ model: "big", messages, max_tokens: 30, temperature: 0 }),
    );
    const stop = plain.choices[0]?.message.content.split(" ")[2] ?? "";
    const settled = service.settled.length;
    await (await service.chat({ model: "big", messages, max_tokens: 30, temperature: 0, stop })).text();
    await until("it is settled", () => service.settled.length > settled);
    const { usage } = service.settled.at(-1) ?? {};
    assert.ok(usage !== undefined && !usage.estimated && usage.completionTokens < 30);
    assert.equal(usage.promptTokens, plain.usage.prompt_tokens);
  });

  test("a client that disconnects stops the upstream and is charged exactly (ggml-org/llama.cpp#24496)", async () => {
    const controller = new AbortController();
    const response = await service.chat(
      { model: "big", messages: say("endless"), stream: true },
      { signal: controller.signal },
    );
    await response.body?.getReader().read();
    controller.abort();
    await until("no slot is at work", async () => (await busy()) === 0);
    await until("it is settled", () => service.settled.at(-1)?.ending === "client_gone");
    const { usage } = service.settled.at(-1) ?? {};
    assert.ok(usage !== undefined && usage.completionTokens > 0 && !usage.estimated);
  });

  test("a prompt that exceeds the window is the caller's error", async () => {
    const response = await service.chat({ model: "big", messages: say("word ".repeat(3000)), max_tokens: 5 });
    assert.equal(response.status, 400);
  });
});
