/** The portal of the whole program: how it is opened, shown, and closed. */
import assert from "node:assert/strict";
import { appendFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { openStream } from "../fixtures/http-stream.ts";
import { type InnerProgram, startInside } from "../fixtures/inner-program.ts";
import { type Fields, fieldsOf, listOf } from "../fixtures/operator.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { freePort, newFolder } from "../fixtures/program.ts";
import { releaseTest } from "../fixtures/thorough.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream, type Upstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

async function portalOf(program: InnerProgram): Promise<string> {
  await program.up();
  const [, url] = /^ {2}Portal +(http:\S+) +\(sign in with an API key\)$/m.exec(program.stdout) ?? [];
  assert.ok(url !== undefined, program.stdout);
  return url;
}

const page = pageHeader;

/** Answers pause in their middle until the result is resolved. */
function pauseAnswers(upstream: Upstream): PromiseWithResolvers<void> {
  const goOn = Promise.withResolvers<void>();
  upstream.play = async (call) => {
    await call.send(first, text("Hello"));
    await goOn.promise;
    await call.stream(text(" world"), finish(), usage(5, 2), done);
  };
  return goOn;
}

async function isStopping({ shows }: InnerProgram): Promise<void> {
  await shows("Stopping: running answers may finish.");
}

async function signIn(url: string, key: string): Promise<string> {
  const answer = await fetch(`${url}/api/session`, {
    method: "POST",
    headers: { ...page, "content-type": "application/json" },
    body: JSON.stringify({ key }),
  });
  assert.equal(answer.status, 200, await answer.text());
  return (answer.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
}

async function publicUrl(url: string, cookie: string): Promise<unknown> {
  const answer = await fetch(`${url}/api/account`, { headers: { ...page, cookie } });
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return JSON.parse(text).public_url;
}

async function listFrom(url: string, path: string, cookie: string): Promise<Fields[]> {
  const response = await fetch(`${url}${path}`, { headers: { ...page, cookie } });
  return listOf(fieldsOf(await response.json()).data);
}

test("a session outlives a restart, and a stream does not delay the stop, while an answer may end", async () => {
  await using upstream = await startUpstream();
  const goOn = pauseAnswers(upstream);
  await using folder = await newFolder();
  configureUpstream(folder.path, upstream);
  const env = { INKWELL_PORTAL_PORT: `${await freePort()}` };
  let cookie: string;
  {
    await using program = startInside(folder.path, { env });
    const { url, key } = await program.up();
    assert.ok(key !== null);
    const portal = await portalOf(program);
    assert.equal((await fetch(`${portal}/`)).status, 200);
    cookie = await signIn(portal, key);
    const live = await fetch(`${portal}/api/live`, { headers: { ...page, cookie } });
    assert.equal(live.status, 200);
    const ended = live.text().catch(() => "ended");
    const answer = await openStream({ url, key });
    const stopped = program.stop();
    await isStopping(program);
    goOn.resolve();
    const rest = await answer.rest();
    assert.equal(rest.at(-1), "[DONE]", "the answer of the API ends in order");
    const passedMs = startOwnTime();
    assert.equal(await stopped, 0);
    assert.ok(passedMs() < 5_000, "the stream is not waited for");
    await ended;
  }
  await using again = startInside(folder.path, { env });
  const portal = await portalOf(again);
  const { url } = await again.up();
  assert.equal(await publicUrl(portal, cookie), url);
  appendFileSync(path.join(folder.path, "inkwell.yaml"), "listen: { url: https://api.example }\n");
  again.signal("SIGHUP");
  await until(
    "the reload is applied",
    async () => (await publicUrl(portal, cookie)) === "https://api.example",
  );
});

// test/http/portal-chat.test.ts has its costs.
releaseTest(
  "a chat of the portal ends in order while the service stops, and costs what it shows",
  async () => {
    await using upstream = await startUpstream();
    const goOn = pauseAnswers(upstream);
    await using folder = await newFolder();
    configureUpstream(folder.path, upstream);
    const env = { INKWELL_PORTAL_PORT: `${await freePort()}` };
    let cookie: string;
    let last: { id: string; cost_micro: number; usage: { completion_tokens: number } };
    {
      await using program = startInside(folder.path, { env });
      const { key } = await program.up();
      assert.ok(key !== null);
      const portal = await portalOf(program);
      cookie = await signIn(portal, key);
      const models = await listFrom(portal, "/api/models", cookie);
      const answer = await fetch(`${portal}/api/chat`, {
        method: "POST",
        headers: { ...page, cookie, "content-type": "application/json" },
        body: JSON.stringify({
          model: models[0]?.id,
          stream: true,
          max_tokens: 50,
          messages: [{ role: "user", content: "What is ink?" }],
        }),
      });
      assert.equal(answer.status, 200);
      const stopped = program.stop();
      await isStopping(program);
      goOn.resolve();
      const events = await answer.text();
      assert.ok(events.endsWith("data: [DONE]\n\n"), events.slice(-300));
      last = JSON.parse(events.trim().split("\n\n").at(-2)?.slice("data: ".length) ?? "");
      assert.equal(await stopped, 0);
    }
    await using again = startInside(folder.path, { env });
    const portal = await portalOf(again);
    const [receipt, ...others] = await listFrom(portal, "/api/requests", cookie);
    assert.ok(receipt !== undefined && others.length === 0);
    const { request_id, cost_micro, completion_tokens } = receipt;
    assert.ok(Number(cost_micro) > 0);
    assert.deepEqual(
      { id: `chatcmpl-${request_id}`, cost_micro, completion_tokens },
      { id: last.id, cost_micro: last.cost_micro, completion_tokens: last.usage.completion_tokens },
    );
  },
);

test("there is no portal unless it is configured", async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  configureUpstream(folder.path, upstream);
  await using program = startInside(folder.path);
  await program.up();
  assert.doesNotMatch(program.stdout, /Portal/);
});
