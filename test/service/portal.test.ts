/** The portal of the whole program: how it is opened, shown, and closed. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import path from "node:path";
import { test } from "node:test";
import { openStream } from "../fixtures/http-stream.ts";
import { type Fields, fieldsOf, listOf } from "../fixtures/operator.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { freePort, newFolder, type Program, startProgram } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";

async function portalOf(program: Program): Promise<string> {
  await program.up();
  const [, url] = /^ {2}Portal +(http:\S+) +\(sign in with an API key\)$/m.exec(program.stdout) ?? [];
  assert.ok(url !== undefined, program.stdout);
  return url;
}

const page = pageHeader;

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
  await using folder = await newFolder();
  const env = { INKWELL_PORTAL_PORT: `${await freePort()}` };
  let cookie: string;
  {
    await using program = startProgram(folder.path, { env });
    const { url, key } = await program.up();
    assert.ok(key !== null);
    const portal = await portalOf(program);
    assert.equal((await fetch(`${portal}/`)).status, 200);
    cookie = await signIn(portal, key);
    const live = await fetch(`${portal}/api/live`, { headers: { ...page, cookie } });
    assert.equal(live.status, 200);
    const ended = live.text().catch(() => "ended");
    const answer = await openStream({ url, key, max_tokens: 300 });
    const stopped = program.stop();
    const rest = await answer.rest();
    assert.equal(rest.at(-1), "[DONE]", "the answer of the API ends in order");
    const passedMs = startOwnTime();
    assert.deepEqual(await stopped, { code: 0, signal: null });
    assert.ok(passedMs() < 5_000, "the stream is not waited for");
    await ended;
  }
  await using again = startProgram(folder.path, { env });
  const portal = await portalOf(again);
  const { url } = await again.up();
  assert.equal(await publicUrl(portal, cookie), url);
  writeFileSync(path.join(folder.path, "inkwell.yaml"), "listen: { url: https://api.example }\n");
  again.process.kill("SIGHUP");
  await until(
    "the reload is applied",
    async () => (await publicUrl(portal, cookie)) === "https://api.example",
  );
});

test("a chat of the portal ends in order while the service stops, and costs what it shows", async () => {
  await using folder = await newFolder();
  const env = { INKWELL_PORTAL_PORT: `${await freePort()}` };
  let cookie: string;
  let last: { id: string; cost_micro: number; usage: { completion_tokens: number } };
  {
    await using program = startProgram(folder.path, { env });
    const { key } = await program.up();
    assert.ok(key !== null);
    const portal = await portalOf(program);
    cookie = await signIn(portal, key);
    const models = await listFrom(portal, "/api/models", cookie);
    const answer = await fetch(`${portal}/api/chat`, {
      method: "POST",
      headers: { ...page, cookie, "content-type": "application/json" },
      body: JSON.stringify({
        ...{ model: models[0]?.id, stream: true, max_tokens: 300 },
        messages: [{ role: "user", content: "What is ink?" }],
      }),
    });
    assert.equal(answer.status, 200);
    const stopped = program.stop();
    const text = await answer.text();
    assert.ok(text.endsWith("data: [DONE]\n\n"), text.slice(-300));
    last = JSON.parse(text.trim().split("\n\n").at(-2)?.slice("data: ".length) ?? "");
    assert.deepEqual(await stopped, { code: 0, signal: null });
  }
  await using again = startProgram(folder.path, { env });
  const portal = await portalOf(again);
  const [receipt, ...others] = await listFrom(portal, "/api/requests", cookie);
  assert.ok(receipt !== undefined && others.length === 0);
  const { request_id, cost_micro, completion_tokens } = receipt;
  assert.ok(Number(cost_micro) > 0);
  assert.deepEqual(
    { id: `chatcmpl-${request_id}`, cost_micro, completion_tokens },
    { id: last.id, cost_micro: last.cost_micro, completion_tokens: last.usage.completion_tokens },
  );
});

test("there is no portal unless it is configured", async () => {
  await using folder = await newFolder();
  await using program = startProgram(folder.path);
  await program.up();
  assert.doesNotMatch(program.stdout, /Portal/);
});

test("a port in use is named with its setting, and nothing is left running", async () => {
  await using folder = await newFolder();
  const other = createServer().listen(0, "127.0.0.1");
  await once(other, "listening");
  const address = other.address();
  assert.ok(address !== null && typeof address === "object");
  await using program = startProgram(folder.path, { env: { INKWELL_PORTAL_PORT: `${address.port}` } });
  assert.deepEqual(await program.ended, { code: 1, signal: null });
  assert.match(program.stderr, /Port \d+ on 127\.0\.0\.1 is in use.*portal: \{ port \}.*INKWELL_PORTAL_PORT/);
  other.close();
});
