/**
 * The service is killed during a stream, and the engine's process during a generation. The ledger
 * stays exact.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { ask, openStream } from "../fixtures/http-stream.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { processEnded } from "../fixtures/processes.ts";
import {
  defaultBaseCredits,
  defaultPrice,
  newFolder,
  type Program,
  quickEntry,
  startProgram,
} from "../fixtures/program.ts";
import { startTwoAnswers } from "../fixtures/running-requests.ts";
import { until } from "../fixtures/until.ts";

async function usedMicro(url: string, key: string): Promise<number> {
  const response = await fetch(`${url}/v1/balance`, { headers: { authorization: `Bearer ${key}` } });
  assert.equal(response.status, 200);
  const { balances }: BalanceBody = JSON.parse(await response.text());
  return 1_000_000 * balances.base.credits;
}

interface BalanceBody {
  balances: { base: { credits: number } };
}

const folder = await newFolder();
/** Started after the kill. */
let service: Program;
let caller: { url: string; key: string };
after(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

test("starts cleanly after a kill during a stream, keeps every charge and charges the last checkpoint (maximhq/bifrost#5925)", async () => {
  let key: string;
  let settled: Record<string, unknown>;
  let read: number;
  let id: string;
  {
    await using killed = startProgram(folder.path, { entry: quickEntry });
    const { url, key: first } = await killed.up();
    assert.ok(first !== null);
    key = first;
    const answer = await ask({ url, key });
    assert.equal(answer.status, 200);
    await answer.text();
    settled = query(folder.path, "select * from charge")[0] ?? assert.fail("the answer was charged");

    const stream = await openStream({
      url,
      key,
      content: "An endless story.",
      logprobs: true,
      top_logprobs: 20,
    });
    id = stream.requestId;
    await until("a checkpoint has been written", () => {
      const [hold] = query(folder.path, "select completion_tokens as made from hold");
      assert.ok(hold !== undefined, "the stream is still running");
      return Number(hold.made) > 0;
    });
    read = stream.texts;
    const engine = killed.enginePid();
    killed.process.kill("SIGKILL");
    assert.deepEqual(await killed.ended, { code: null, signal: "SIGKILL" });
    await processEnded(engine);
    stream.abort();
  }
  assertSoundLedger(folder.path, { holds: 1 });
  const [checkpoint] = query(folder.path, "select * from hold");
  assert.ok(checkpoint !== undefined && Number(checkpoint.completion_tokens) >= read);

  service = startProgram(folder.path, { entry: quickEntry });
  const up = await service.up();
  assert.equal(up.key, null);
  caller = { url: up.url, key };
  const meanwhile = await ask({ url: up.url, key, max_tokens: 1 });
  assert.equal(meanwhile.status, 200, "the open hold stands in nobody's way");
  await until("the hold has expired", () => query(folder.path, "select id from hold").length === 0);

  const [expired] = query(folder.path, "select * from charge where id = ?", id);
  assert.equal(expired?.ending, "expired");
  for (const name of ["prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"])
    assert.equal(expired[name], checkpoint[name], `${name} as at the last checkpoint`);
  assert.deepEqual(query(folder.path, "select * from charge where id = ?", String(settled.id))[0], settled);
  const [total] = query(folder.path, "select sum(cost) as cost from charge");
  const left = await usedMicro(up.url, key);
  const exact = defaultBaseCredits * 1_000_000 - Number(total?.cost);
  assert.equal(left, Math.floor(exact / 1_000_000) * 1_000_000, "whole credits of what is left");
  assertSoundLedger(folder.path);
});

test("ends the running requests as documented if the engine's process is killed, and answers the next", async () => {
  const { stream, whole } = await startTwoAnswers(folder.path, caller);
  const engine = service.enginePid();
  process.kill(engine, "SIGKILL");

  const last = (await stream.rest()).at(-1);
  assert.ok(last !== undefined && last !== "[DONE]", "no [DONE] after half an answer");
  assert.equal(last.error?.code, "upstream_error");
  const [broken] = query(folder.path, "select * from charge where id = ?", stream.requestId);
  assert.equal(broken?.ending, "engine_failed");
  assert.ok(Number(broken.completion_tokens) >= stream.texts, "every token that was read is charged");
  const { prompt, completion } = defaultPrice;
  assert.equal(
    broken.cost,
    prompt * Number(broken.prompt_tokens) + completion * Number(broken.completion_tokens),
  );
  // It either had begun, and failed with the process, or waits for the next one and never ends by
  // itself.
  const outcome = await Promise.race([whole.then(({ status }) => status), answered()]);

  async function answered(): Promise<string> {
    for (;;) {
      const next = await ask({ ...caller, max_tokens: 3 });
      const text = await next.text();
      if (next.status === 200) return "the next was answered";
      // A busy machine starts another process later than requests wait for it.
      assert.match(text, /"code":"model_unavailable"/);
      assert.notEqual(next.headers.get("retry-after"), null);
    }
  }
  assert.ok(outcome === 502 || outcome === "the next was answered", `${outcome}`);
  assert.equal(await answered(), "the next was answered");
  assert.notEqual(service.enginePid(), engine, "by another process");
});
