/**
 * `GET /v1/balance`: its fields, its arithmetic, and the answer for an empty or unreadable
 * balance.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { balanceObject } from "../../src/accounts/balance-object.ts";
import type { BalanceView, BucketView } from "../../src/ledger/balance.ts";
import { limits } from "../../src/limits/limits.ts";
import { babble, errorOf, jsonOf, startService } from "../fixtures/service.ts";
import { stopTime } from "../fixtures/stopped-time.ts";
import { until } from "../fixtures/until.ts";

const at = Date.UTC(2026, 1, 28, 23, 59, 59, 999);

function bucket(credits: number, cap: number): BucketView {
  return {
    remainingMicro: Math.round(credits * 1e6),
    capMicro: cap * 1e6,
    startsMs: at,
    endsMs: at + 86_400_000,
    refillMicro: cap * 1e6,
  };
}

function view(
  base: [credits: number, cap: number],
  overage: [credits: number, cap: number],
  additional = 0,
): BalanceView {
  return {
    plan: "starter",
    limits: {},
    limitsLeft: [],
    nextPlan: null,
    state: "active",
    endsMs: null,
    base: bucket(...base),
    overage: bucket(...overage),
    additionalMicro: additional * 1e6,
    caps: [],
    heldMicro: 0,
  };
}

test("the balance has exactly the fields of the contract", () => {
  assert.deepEqual(balanceObject(view([750, 1000], [200, 200], 30)), {
    object: "balance",
    available: true,
    plan: "starter",
    balances: {
      base: { credits: 750, percent: 75 },
      overage: { credits: 200, percent: 100 },
      additional: { credits: 30 },
      total: { credits: 980, percent: 79.16 },
    },
    caps: { base: { credits: 1000 }, overage: { credits: 200 }, total: { credits: 1200 } },
    baseWindow: { startedAt: "2026-02-28T23:59:59.999Z", refreshesAt: "2026-03-01T23:59:59.999Z" },
    overageWindow: { startedAt: "2026-02-28T23:59:59.999Z", refreshesAt: "2026-03-01T23:59:59.999Z" },
  });
});

const sums: [rule: string, view: BalanceView, credits: number[], percents: number[], available?: boolean][] =
  [
    [
      "credits are rounded down, each bucket for itself",
      view([0.9, 10], [0.9, 10], 0.9),
      [0, 0, 0, 0],
      [9, 9, 9],
      false,
    ],
    ["percent has two decimals, rounded down", view([1, 3], [2, 3]), [1, 2, 0, 3], [33.33, 66.66, 50]],
    [
      "a hair below the cap is not 100",
      view([999.999999, 1000], [0, 0]),
      [999, 0, 0, 999],
      [99.99, 0, 99.99],
    ],
    ["a cap of 0 is 0 percent", view([0, 0], [0, 0], 5), [0, 0, 5, 5], [0, 0, 0]],
    [
      "purchased credits never push the total over 100",
      view([10, 10], [10, 10], 1000),
      [10, 10, 1000, 1020],
      [100, 100, 100],
    ],
    ["nothing at all is not available", view([0, 10], [0, 10]), [0, 0, 0, 0], [0, 0, 0], false],
    [
      "the largest buckets are exact",
      view([4_499_999_999, 4_500_000_000], [0, 4_500_000_000]),
      [4_499_999_999, 0, 0, 4_499_999_999],
      [99.99, 0, 49.99],
    ],
  ];
for (const [rule, given, credits, percents, available = true] of sums) {
  test(rule, () => {
    const { balances, available: shown } = balanceObject(given);
    const { base, overage, additional, total } = balances;
    assert.deepEqual([base.credits, overage.credits, additional.credits, total.credits], credits);
    assert.deepEqual([base.percent, overage.percent, total.percent], percents);
    assert.equal(shown, available);
  });
}

type Balance = ReturnType<typeof balanceObject>;

test("the balance shows a charge at once, and includes the credits of open holds", async () => {
  await using service = await startService({
    script: babble("word ", { tokenDelayMs: 2 }),
    price: { prompt: 1_000_000, completion: 2_000_000 },
  });
  const balance = async () => jsonOf<Balance>(await service.request("GET", "/v1/balance"));
  assert.equal((await balance()).balances.total.credits, 1200);
  const away = new AbortController();
  const running = await service.chat({ stream: true, max_tokens: 500 }, { signal: away.signal });
  assert.equal((await balance()).balances.total.credits, 1200, "a hold is not a charge");
  away.abort();
  await assert.rejects(running.text());
  await (await service.chat({ max_tokens: 10 })).text();
  const { costMicro = 0 } = service.settled.find((receipt) => receipt.ending === "length") ?? {};
  assert.equal(costMicro, 23_000_000, "three tokens of prompt, ten of answer");
  await until("both are settled", () => service.settled.length === 2);
  const spent = service.settled.reduce((sum, receipt) => sum + receipt.costMicro, 0) / 1e6;
  const after = await balance();
  assert.equal(after.balances.total.credits, 1200 - spent);
  assert.ok(after.baseWindow.startedAt <= new Date().toISOString());
  assert.ok(after.baseWindow.refreshesAt > new Date().toISOString());
});

test("an empty balance is answered with 200", async () => {
  const none = { credits: 0, every: "P1D", align: "opening" } as const;
  await using service = await startService({ plan: { base: none, overage: none } });
  const response = await service.request("GET", "/v1/balance");
  assert.equal(response.status, 200);
  assert.equal((await jsonOf<Balance>(response)).available, false);
  assert.equal((await errorOf(await service.chat())).code, "insufficient_credits");
});

test("a key reads its balance and models so many times a second, and its chat has no such limit", async () => {
  await using service = await startService();
  const { most } = limits.keyReads;
  const read = async (n: number) => {
    const answer = await service.request("GET", n % 2 === 0 ? "/v1/balance" : "/v1/models");
    const retryAfter = answer.headers.get("retry-after");
    return { status: answer.status, retryAfter, text: await answer.text() };
  };
  using _ = stopTime();
  const answers = await Promise.all(Array.from({ length: 2 * most }, (_, n) => read(n)));
  const late = answers.filter(({ status }) => status !== 200);
  assert.equal(late.length, most);
  for (const { status, retryAfter, text } of late) {
    assert.deepEqual([status, retryAfter], [429, "1"]);
    assert.match(text, /"code":"rate_limit_exceeded"/);
  }
  const other = await service.addKey({});
  const headers = { authorization: `Bearer ${other}` };
  assert.equal((await service.request("GET", "/v1/balance", { headers })).status, 200, "another key");
  assert.equal((await service.chat()).status, 200);
});
