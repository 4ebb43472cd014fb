/**
 * Budgets of keys under concurrent requests: exact for one key, and for keys that share a pool.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { paidOf, sumOf } from "../../src/ledger/grants.ts";
import { pageRowsMax } from "../../src/store/store.ts";
import { credits } from "../fixtures/ledger-rows.ts";
import { errorOf, say, startService, type TestService } from "../fixtures/service.ts";

/** A tenth of a credit for each token. */
const price = { prompt: 100_000, completion: 100_000 };
const options = {
  price,
  script: say("a ", "b ", "c ", "d "),
  engine: { parallel: 8, queue: 100 },
} as const;

/** The prompt of a test has three tokens. One token of the answer has to be paid too. */
const leastMicro = 4 * price.prompt;

function setBudget({ ledger, account }: TestService, key: string, amountMicro: number, every = "P1D") {
  const set = { budget: { amountMicro, rule: { every: every } } };
  return ledger.apply({ kind: "key", account, key, op: `${key} ${amountMicro}/${every}`, set, by: "test" });
}

/** Sends a request again until it is answered or refused for good. Returns the last code. */
async function insist(service: TestService, key: string): Promise<string> {
  for (;;) {
    const answer = await service.chat({ max_tokens: 8 }, { headers: { authorization: `Bearer ${key}` } });
    if (answer.status === 200) {
      await answer.text();
      return "answered";
    }
    const { code } = await errorOf(answer);
    if (answer.status === 402) {
      assert.equal(answer.headers.get("x-should-retry"), "false");
      return code;
    }
    assert.equal(code, "credits_reserved");
    assert.equal(answer.headers.get("retry-after"), "1");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function chargedTo(service: TestService, key: string): Promise<number> {
  const lines = await service.store.usage({ key, limit: pageRowsMax });
  return lines.reduce((sum, line) => sum + sumOf(paidOf(line)), 0);
}

test("50 concurrent requests spend exactly what the budget of their key pays for", async () => {
  await using service = await startService(options);
  await setBudget(service, "key1", credits(10));
  const codes = await Promise.all(Array.from({ length: 50 }, () => insist(service, service.key)));
  const row = await service.store.keyById("key1");
  const charged = await chargedTo(service, "key1");
  assert.ok(charged <= credits(10) && charged > credits(10) - leastMicro, `${charged} micro-credits`);
  assert.deepEqual([row?.budgetSpentMicro, row?.heldMicro, row?.holds], [charged, 0, 0]);
  assert.deepEqual(new Set(codes), new Set(["answered", "key_budget_exceeded"]));
  assert.equal((await service.balance()).base.remainingMicro, credits(1000) - charged);
});

test("50 concurrent requests of two keys share the pool of their account, each within its budget", async () => {
  const base = { credits: 12, every: "P1D", align: "opening" } as const;
  await using service = await startService({
    ...options,
    plan: { base, overage: { credits: 0, every: "P1M", align: "opening" } },
  });
  const other = await service.addKey();
  await setBudget(service, "key1", credits(9));
  await setBudget(service, "key2", credits(7));
  const codes = await Promise.all(
    Array.from({ length: 100 }, (_, n) => insist(service, n % 2 === 0 ? service.key : other)),
  );
  const [one, two] = [await chargedTo(service, "key1"), await chargedTo(service, "key2")];
  assert.ok(one <= credits(9) && two <= credits(7), `${one} and ${two}`);
  assert.ok(one + two > credits(12) - leastMicro && one + two <= credits(12), `${one + two}`);
  assert.ok(codes.includes("insufficient_credits"), codes.join());
  const rows = [await service.store.keyById("key1"), await service.store.keyById("key2")];
  assert.deepEqual(
    rows.map((row) => [row?.budgetSpentMicro, row?.heldMicro]),
    [
      [one, 0],
      [two, 0],
    ],
  );
  assert.equal((await service.balance()).base.remainingMicro, credits(12) - one - two);
});

test("an answer ends when the budget of its key is spent, and the message says when it refreshes", async () => {
  await using service = await startService(options);
  await setBudget(service, "key1", 5 * price.prompt);
  const answer = await service.chat();
  assert.match(await answer.text(), /"content":"a b ".*"finish_reason":"length"/);
  const refused = await service.chat();
  assert.equal(refused.status, 402);
  const { code, message } = await errorOf(refused);
  assert.equal(code, "key_budget_exceeded");
  assert.match(message, /The budget of this key cannot pay .* It refreshes at \d{4}-.*Z\./);
  await setBudget(service, "key1", 9 * price.prompt);
  assert.equal((await service.chat()).status, 200);
});

test("the message of a 429 names the key if its own requests hold the rest of its budget", async () => {
  await using service = await startService(options);
  const { ledger, account } = service;
  await setBudget(service, "key1", credits(2));
  const held = { account, requestId: "running", key: "key1", model: "small", ttlMs: 60_000 };
  const amount = { price, promptTokens: 1, minMicro: credits(2), wantMicro: credits(2) };
  assert.equal((await ledger.apply({ kind: "hold", ...held, ...amount })).kind, "held");
  const refused = await service.chat();
  assert.deepEqual([refused.status, refused.headers.get("retry-after")], [429, "1"]);
  const { code, message } = await errorOf(refused);
  assert.equal(code, "credits_reserved");
  assert.match(
    message,
    /^The rest of the budget of this key is held by its requests that are still running\./,
  );
  const usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  const end = { requestId: "running", usage, ending: "refused", estimated: false } as const;
  await ledger.apply({ kind: "settle", account, ...end, by: null });
  assert.equal((await service.chat()).status, 200);
});

test("a budget of 0 pauses a key, also for a model of price 0", async () => {
  await using service = await startService({ ...options, price: { prompt: 0, completion: 0 } });
  await setBudget(service, "key1", 1);
  assert.equal((await service.chat()).status, 200, "a budget that cannot be spent");
  await setBudget(service, "key1", 0);
  const answer = await service.chat();
  assert.equal(answer.status, 402);
  const { code, message } = await errorOf(answer);
  assert.equal(code, "key_budget_exceeded");
  assert.equal(
    message,
    "The budget of this key is 0, which pauses the key. Ask for a larger budget, or use another key.",
  );
  const { holds, heldMicro } = (await service.store.keyById("key1")) ?? {};
  assert.deepEqual([holds, heldMicro], [0, 0]);
});
