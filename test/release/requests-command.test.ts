/**
 * `inkwell requests` beside a running service on one database: the command finds an answer that is
 * being streamed, and stops it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { openStream } from "../fixtures/http-stream.ts";
import { inkwell as runInside } from "../fixtures/inner-program.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";
import { defaultPrice, newFolder, startProgram } from "../fixtures/program.ts";
import { endless } from "../fixtures/running-requests.ts";

test("a command stops a streaming answer of the service, which is charged as it stands", async () => {
  // test/contract/stop-requests.test.ts has both databases.
  const env: Record<string, string> = {};
  if (noPostgres === null) {
    const server = await postgres();
    env.INKWELL_DATABASE = server.url(await server.create());
  }
  await using folder = await newFolder();
  async function inkwell(...args: string[]) {
    const { code, stdout, stderr } = await runInside(folder.path, [...args, "--json"], { env });
    return { code, document: JSON.parse(stdout), remarks: stderr };
  }
  await using service = startProgram(folder.path, { env });
  const { url, key } = await service.up();
  assert.ok(key !== null);
  const [stopped, other] = [
    await openStream({ url, key, ...endless }),
    await openStream({ url, key, ...endless }),
  ];
  const listed = await inkwell("requests", "list", "default");
  assert.equal(listed.code, 0, listed.remarks);
  const ids = listed.document.map((row: { request_id: string }) => row.request_id);
  assert.deepEqual(ids, [stopped.requestId, other.requestId]);
  for (const row of listed.document) {
    assert.deepEqual([row.account, row.model], ["default", "smollm2-135m-instruct"]);
    assert.ok(row.held_micro > 0);
  }

  const stop = await inkwell("requests", "stop", stopped.requestId);
  assert.equal(stop.code, 0, stop.remarks);
  assert.deepEqual(stop.document, { request_id: stopped.requestId, stopped: true });
  const last = (await stopped.rest()).at(-1);
  assert.ok(typeof last === "object" && last.error?.code === "request_stopped", JSON.stringify(last));
  const [receipt, ...others] = (await inkwell("usage", "--request-id", stopped.requestId)).document;
  assert.deepEqual([receipt.ending, others], ["stopped", []]);
  assert.ok(receipt.completion_tokens >= stopped.texts && stopped.texts > 0, `${stopped.texts} texts`);
  const { prompt_tokens, cached_tokens, completion_tokens, cost_micro } = receipt;
  assert.equal(
    cost_micro,
    (prompt_tokens - cached_tokens) * defaultPrice.prompt +
      cached_tokens * (defaultPrice.cachedPrompt ?? defaultPrice.prompt) +
      completion_tokens * defaultPrice.completion,
  );

  const again = await inkwell("requests", "stop", stopped.requestId);
  assert.equal(again.code, 1);
  assert.match(again.document.error.message, /ended at .* \(stopped\)\. Nothing has changed/);
  const rest = (await inkwell("requests", "list")).document;
  assert.deepEqual(
    rest.map((row: { request_id: string }) => row.request_id),
    [other.requestId],
    "the other answer goes on",
  );
  other.abort();
  assert.equal((await inkwell("audit")).document.sound, true);
});
