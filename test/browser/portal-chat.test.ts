/** The chat of the portal: text, cost, stopping, refusals, and that nothing stays. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout } from "node:timers/promises";
import type { Browser, Page } from "playwright-core";
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, confirmed } from "../fixtures/console.ts";
import { openStream } from "../fixtures/http-stream.ts";
import { assertSoundLedger } from "../fixtures/ledger-file.ts";
import { keyOf, openPortal } from "../fixtures/portal-pages.ts";
import { endless } from "../fixtures/running-requests.ts";
import { ofRelease } from "../fixtures/thorough.ts";

const test = browserTests({ pages: "portal" });
const releaseTest = ofRelease(test);
const turnCost = /credits for \d+ prompt tokens? and/;

test("answers, shows what each turn cost, and forgets the conversation", async (visit) => {
  const { page, service } = visit;
  const { id, secret } = await keyOf(service, "default", { name: "chatting" });
  await openPortal(visit, "/chat", secret);
  await page.locator("#message:focus").waitFor();
  await page.getByText("Settings").click();
  await page.getByText(/credits per million prompt tokens/).waitFor();
  for (const text of ["Say <b>hello</b>", "Again"]) {
    await page.getByLabel("Message").fill(text);
    await page.keyboard.press("Enter");
    await page.getByText(text, { exact: true }).waitFor();
    await page.getByRole("button", { name: "Send" }).waitFor();
  }
  assert.equal(await page.getByText(turnCost).count(), 2);
  const { data } = await service.call("GET", `/admin/usage?key=${id}`);
  const costs: number[] = Object(data).map((row: { cost_micro: number }) => row.cost_micro);
  assert.equal(costs.length, 2);
  const sum = costs.reduce((total, micro) => total + micro, 0) / 1_000_000;
  await page.getByText(`Conversation: ${sum} credits`).waitFor();
  await page.reload();
  await page.getByLabel("Message").waitFor();
  assert.equal(await page.getByText("Again").count(), 0);
});

test("stops an answer, and shows what was generated and what it cost", async (visit) => {
  const { page, service } = visit;
  const { id, secret } = await keyOf(service, "default", { name: "stopping" });
  // Log-probabilities slow the miniature model down, which answers in an instant.
  await page.route("**/api/chat", async (route) => {
    const { content: _content, ...slow } = endless;
    await route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ...slow }) });
  });
  await openPortal(visit, "/chat", secret);
  await page.getByText("Settings").click();
  await page.getByLabel("Longest answer (tokens)").fill("4000");
  await page.getByLabel("Message").fill(endless.content);
  await page.keyboard.press("Enter");
  await page.locator(".markdown > :not(:empty)").first().waitFor();
  // On a busy machine the answer might end before the click.
  const engine = service.program.enginePid();
  process.kill(engine, "SIGSTOP");
  try {
    await page.getByRole("button", { name: "Stop" }).click();
  } finally {
    process.kill(engine, "SIGCONT");
  }
  await page.getByText("You stopped the answer. It costs what was generated.").waitFor();
  await page.getByText(turnCost).waitFor();
  const { data } = await service.call("GET", `/admin/usage?key=${id}`);
  const [receipt] = Object(data);
  assert.equal(receipt.ending, "client_gone");
  await page.getByText(`${receipt.cost_micro / 1_000_000} credits for`).waitFor();
  await openPortal(visit, "/requests", secret);
  await page.getByText("aborted").waitFor();
  assertSoundLedger(service.folder);
});

test("a key stops its own request, and the receipt says who stopped it", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "default", { name: "stopping", portal: "own" });
  const stream = await openStream({ url: service.apiUrl, key: secret, ...endless });
  await openPortal(visit, "/requests", secret);
  await page.getByRole("button", { name: `Stop the request ${stream.requestId}` }).click();
  await page.getByRole("button", { name: "Stop the request", exact: true }).click();
  await confirmed(page, "The request is stopped.");
  const last = (await stream.rest()).at(-1);
  assert.ok(typeof last === "object" && last.error?.code === "request_stopped", JSON.stringify(last));
  await page.getByRole("heading", { name: "Running requests" }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Refresh" }).click();
  await page.getByTitle("A key of the account stopped the request.").waitFor();
});

releaseTest("a cap that is reached is said with what to do, and the refused message stays", async (visit) => {
  const { page, service, expects } = visit;
  const spending_caps = [{ credits: 1, every: "P1D" }];
  const { secret } = await keyOf(service, "default", { name: "poor", spending_caps });
  await openPortal(visit, "/chat", secret);
  await page.getByLabel("Message").fill("one two three ".repeat(40));
  expects("402 POST /api/chat");
  await page.getByRole("button", { name: "Send" }).click();
  await page
    .getByRole("alert")
    .getByText(/Send a shorter prompt: .* Ask for a higher cap, or use another key\./)
    .waitFor();
  assert.match(await page.getByLabel("Message").inputValue(), /^one two three/);
  await page.getByText("Settings").click();
  await page.getByLabel("Temperature").fill("hot");
  await page.getByRole("button", { name: "Send" }).click();
  await page
    .getByRole("alert")
    .getByText(/from 0 to 2/)
    .waitFor();
});

/** The stream of an answer of these pieces. */
function eventsOf(pieces: readonly string[]): string[] {
  const id = "chatcmpl-019a0c3e-5d1f-7a52-9c3e-8d1f5a529c3e";
  const chunks = pieces.map((content) => ({ id, choices: [{ delta: { content }, finish_reason: null }] }));
  const usage = { prompt_tokens: 3, completion_tokens: pieces.length };
  const last = { id, choices: [], usage, cost_micro: 1_500_000 };
  return [...[...chunks, last].map((chunk) => JSON.stringify(chunk)), "[DONE]"].map(
    (data) => `data: ${data}\n\n`,
  );
}

/** Answers the next message with these pieces, all at once. */
async function answerWith(page: Page, pieces: readonly string[]): Promise<void> {
  const headers = { "content-type": "text/event-stream" };
  const body = eventsOf(pieces).join("");
  await page.route("**/api/chat", (route) => route.fulfill({ body, headers }), { times: 1 });
}

test("shows Markdown, takes over no HTML, and loads nothing", async (visit) => {
  const { page } = visit;
  await openPortal(visit, "/chat");
  const text = [
    "# A title",
    "Some **bold** &lt;text&gt; &constructor; with `code`, <b onclick=alert(1)>raw</b>.",
    "![picture](http://elsewhere.example/x.png) and [a link](https://elsewhere.example/), [bad](javascript:alert(1))",
    "- [x] done\n- open",
    "| a | b |\n|---|--:|\n| 1 | 2 |",
    "```js\nlet x = '<i>';\n```",
    `${">".repeat(5000)} deep`,
    `${"*".repeat(5000)}strong${"*".repeat(5000)}`,
    "<script>alert(1)</script>",
  ].join("\n\n");
  await answerWith(page, text.split(/(?<= )/));
  await page.getByLabel("Message").fill("Show Markdown");
  await page.keyboard.press("Enter");
  await page.getByText("1.5 credits for 3 prompt tokens").waitFor();
  const shown = page.locator(".markdown");
  assert.equal(await shown.locator("img, script, b").count(), 0);
  assert.equal(await shown.getByRole("heading", { name: "A title" }).count(), 1);
  assert.equal(await shown.locator("p > strong").innerText(), "bold");
  const links = await shown.getByRole("link").all();
  const targets = await Promise.all(links.map((link) => link.getAttribute("href")));
  assert.deepEqual(targets, ["http://elsewhere.example/x.png", "https://elsewhere.example/"]);
  for (const link of links) assert.match((await link.getAttribute("rel")) ?? "", /noreferrer/);
  const plain = await shown.innerText();
  for (const part of [
    "<text> &constructor;",
    "<b onclick=alert(1)>raw</b>",
    "☑ done",
    "<script>",
    "let x = '<i>';",
    "> deep",
    "*strong*",
  ])
    assert.ok(plain.includes(part), `${part} in ${plain}`);
  await shown.getByRole("button", { name: "Copy the code" }).first().click();
  assert.equal(await page.evaluate("navigator.clipboard.readText()"), "let x = '<i>';");
  await page.getByRole("button", { name: "Copy the answer" }).click();
  assert.equal(await page.evaluate("navigator.clipboard.readText()"), text);
  await assertAccessible(page);
});

test("edits a message and asks again, with the conversation before it", async (visit) => {
  const { page } = visit;
  await openPortal(visit, "/chat");
  const sent: string[][] = [];
  page.on("request", (request) => {
    if (!request.url().endsWith("/api/chat")) return;
    const { messages } = request.postDataJSON();
    sent.push(messages.map(({ content }: { content: string }) => content));
  });
  const ask = async (answer: string, act: () => Promise<void>) => {
    await answerWith(page, [answer]);
    await act();
    await page.getByText(answer, { exact: true }).waitFor();
    await page.getByRole("button", { name: "Send" }).waitFor();
  };
  const type = (message: string) => async () => {
    await page.getByLabel("Message").fill(message);
    await page.keyboard.press("Enter");
  };
  await ask("Yes.", type("First"));
  await ask("No.", type("Second"));
  await ask("Perhaps.", () => page.getByRole("button", { name: "Retry" }).click());
  await page.getByRole("button", { name: "Edit" }).first().click();
  assert.equal(await page.locator("#message:focus").inputValue(), "First");
  await ask("Why?", type("Other"));
  assert.equal(await page.getByText("Perhaps.").count(), 0);
  assert.deepEqual(sent, [["First"], ["First", "Yes.", "Second"], ["First", "Yes.", "Second"], ["Other"]]);
});

/** Paragraphs, lists, tables and code, in pieces of a few letters. */
function longAnswer(count: number): string[] {
  const part = [
    "## Part\n\nA *paragraph* with **bold** words, `code` and [a link](https://elsewhere.example/).\n\n",
    "- one item\n- another `item`\n  1. nested\n\n",
    "| name | value |\n|---|--:|\n| one | 1 |\n| two | 2 |\n\n",
    "```ts\nfunction f(x: number) {\n  return x + 1;\n}\n```\n\n",
  ].join("");
  const pieces: string[] = [];
  while (pieces.length < count) pieces.push(...(part.match(/[\s\S]{1,5}/g) ?? []));
  return pieces.slice(0, count);
}

/** Serves the pieces as an answer that arrives in bursts, as over a slow network. */
async function serveAnswer(pieces: readonly string[]): Promise<AsyncDisposable & { url: string }> {
  const server = createServer(async (_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const events = eventsOf(pieces);
    while (events.length > 0) {
      response.write(events.splice(0, 50).join(""));
      await setTimeout(20);
    }
    response.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  return {
    url: `http://127.0.0.1:${address.port}/`,
    async [Symbol.asyncDispose]() {
      server.close();
      server.closeAllConnections();
    },
  };
}

interface TraceEvent {
  name: string;
  pid: number;
  tid: number;
  /** Time of the thread on a processor, so other programs do not count. */
  tdur?: number;
  args?: { name?: string };
}

/** What follows a task, such as reading a stream, is no part of it. */
const taskNames = /RunTask$|PerformMicrotaskCheckpoint$/;

/** Returns the times of processor of the tasks of pages, the longest first. */
async function taskTimesMs(browser: Browser, page: Page, run: () => Promise<void>): Promise<number[]> {
  await browser.startTracing(page, { categories: ["toplevel"] });
  await run();
  const trace = JSON.parse((await browser.stopTracing()).toString());
  const events: TraceEvent[] = trace.traceEvents;
  const main = new Set(
    events
      .filter(({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain")
      .map(({ pid, tid }) => `${pid} ${tid}`),
  );
  return (
    events
      .filter(({ name, pid, tid }) => taskNames.test(name) && main.has(`${pid} ${tid}`))
      // A task that is cut off at the beginning or at the end has none.
      .flatMap(({ tdur }) => (tdur === undefined ? [] : tdur / 1000))
      .toSorted((one, other) => other - one)
  );
}

/** Counts how often the page tries a regular expression, such as a rule of the parser. */
async function countRules(page: Page): Promise<() => Promise<number>> {
  await page.evaluate(`{
    const { exec } = RegExp.prototype;
    globalThis.rules = 0;
    RegExp.prototype.exec = function (text) {
      globalThis.rules += 1;
      return exec.call(this, text);
    };
  }`);
  return () => page.evaluate("globalThis.rules");
}

test("2,000 tokens of Markdown block the page for no longer than 50 ms, and are parsed once", async (visit) => {
  const { page, context } = visit;
  const pieces = longAnswer(2000);
  await using upstream = await serveAnswer(pieces);
  await openPortal(visit, "/chat");
  const rulesSoFar = await countRules(page);
  await page.route("**/api/chat", (route) => route.continue({ url: upstream.url }), { times: 1 });
  const times = await taskTimesMs(context.browser() ?? assert.fail(), page, async () => {
    await page.getByLabel("Message").fill("Write much");
    await page.keyboard.press("Enter");
    await page.getByText("and 2,000 answer tokens").waitFor();
  });
  const inBursts = await rulesSoFar();
  assert.ok(times.length > 20, `${times.length} tasks`);
  assert.ok(Number(times[0]) < 50, `the longest tasks took ${times.slice(0, 5)} ms`);
  assert.ok((await page.locator(".markdown table").count()) > 20, "all of it is there");
  await answerWith(page, [pieces.join("")]);
  await page.getByRole("button", { name: "Retry" }).click();
  await page.getByText("and 1 answer token").waitFor();
  const atOnce = (await rulesSoFar()) - inBursts;
  // The last block is parsed again with each picture: 1.15 times the rules.
  assert.ok(inBursts < 3 * atOnce, `${inBursts} rules were tried in bursts, ${atOnce} at once`);
});
