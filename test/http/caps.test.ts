/**
 * Caps of plans and keys: exact under concurrent requests, for one key and for keys that share a
 * pool, and how requests are refused, end and wait because of them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { paidOf, sumOf } from "../../src/ledger/grants.ts";
import { pageRowsMax } from "../../src/store/store.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { credits } from "../fixtures/ledger-rows.ts";
import { babble, errorOf, say, startService, type TestService } from "../fixtures/service.ts";
import { start } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";

/** A tenth of a credit for each token. */
const price = { prompt: 100_000, completion: 100_000 };
const options = {
  price,
  script: say("a ", "b ", "c ", "d "),
  engine: { parallel: 8, queue: 100 },
} as const;

/** The prompt of a test has three tokens. One token of the answer has to be paid too. */
const leastMicro = 4 * price.prompt;

async function setCap({ ledger, account }: TestService, key: string, amountMicro: number): Promise<void> {
  const caps = [{ amountMicro, every: "P1D", byOperator: true }];
  const id = { account, key, op: `${key} ${amountMicro}` };
  const outcome = await ledger.apply({ kind: "key", ...id, set: { caps }, by: "test" });
  assert.equal(outcome.kind, "changed");
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

/** Another request takes these credits, and runs until `release`. */
async function holdFor({ ledger, account }: TestService, key: string, amount: number): Promise<void> {
  const held = await ledger.apply(hold("running", credits(amount), { account, key, model: "small", price }));
  assert.equal(held.kind, "held");
}

async function release({ ledger, account }: TestService): Promise<void> {
  assert.equal((await ledger.apply(settle("running", 0, { account, ending: "refused" }))).kind, "settled");
}

async function chargedTo(service: TestService, key: string): Promise<number> {
  const lines = await service.store.usage({ key, limit: pageRowsMax });
  return lines.reduce((sum, charge) => sum + sumOf(paidOf(charge)), 0);
}

test("50 concurrent requests spend exactly what the cap of their key allows", async () => {
  await using service = await startService(options);
  await setCap(service, "key1", credits(10));
  const codes = await Promise.all(Array.from({ length: 50 }, () => insist(service, service.key)));
  const row = await service.store.keyById("key1");
  const charged = await chargedTo(service, "key1");
  assert.ok(charged <= credits(10) && charged > credits(10) - leastMicro, `${charged} micro-credits`);
  assert.deepEqual([row?.counters[0]?.spentMicro, row?.running, row?.holds], [charged, [], 0]);
  assert.deepEqual(new Set(codes), new Set(["answered", "cap_reached"]));
  assert.equal((await service.balance()).base.remainingMicro, credits(1000) - charged);
});

test("50 concurrent requests of two keys share the pool of their account, each within its cap", async () => {
  const base = { credits: 12, every: "P1D", align: "opening" } as const;
  await using service = await startService({
    ...options,
    plan: { base, overage: { credits: 0, every: "P1M", align: "opening" } },
  });
  const other = await service.addKey();
  await setCap(service, "key1", credits(9));
  await setCap(service, "key2", credits(7));
  const codes = await Promise.all(
    Array.from({ length: 100 }, (_, n) => insist(service, n % 2 === 0 ? service.key : other)),
  );
  const [one, two] = [await chargedTo(service, "key1"), await chargedTo(service, "key2")];
  assert.ok(one <= credits(9) && two <= credits(7), `${one} and ${two}`);
  assert.ok(one + two > credits(12) - leastMicro && one + two <= credits(12), `${one + two}`);
  assert.ok(codes.includes("insufficient_credits"), codes.join());
  const rows = [await service.store.keyById("key1"), await service.store.keyById("key2")];
  assert.deepEqual(
    rows.map((row) => [row?.counters[0]?.spentMicro, row?.running]),
    [
      [one, []],
      [two, []],
    ],
  );
  assert.equal((await service.balance()).base.remainingMicro, credits(12) - one - two);
});

const refreshed = String.raw`It refreshes at \d{4}-\d\d-\d\dT[\d:.]+Z\.`;

test("an answer ends when the cap of its key is reached, and the message says when it refreshes", async () => {
  await using service = await startService(options);
  await setCap(service, "key1", 5 * price.prompt);
  const answer = await service.chat();
  assert.match(await answer.text(), /"content":"a b ".*"finish_reason":"length"/);
  const [receipt] = await service.store.usage({ key: "key1", limit: 1 });
  assert.deepEqual([receipt?.ending, receipt?.note], ["cap", "the cap P1D of the key was reached"]);
  const refused = await service.chat();
  assert.equal(refused.status, 402);
  const { code, message } = await errorOf(refused);
  assert.equal(code, "cap_reached");
  assert.match(
    message,
    new RegExp(
      `^The cap of this key \\(0\\.5 credits per P1D\\) cannot pay this prompt and one token of "small": they take 0\\.4 credits, and 0 are left\\. ${refreshed}$`,
    ),
  );
  await setCap(service, "key1", 9 * price.prompt);
  assert.equal((await service.chat()).status, 200);
});

test("a stream that a cap ends has the finish reason length, and its receipt names the cap", async () => {
  const caps = [{ name: "dear", credits: 1, every: "P1M", align: "calendar", models: ["sm*"] }] as const;
  await using service = await startService({ ...options, script: babble("on "), plan: { caps } });
  const text = await (await service.chat({ stream: true })).text();
  assert.match(text, /"finish_reason":"length"/);
  const [receipt] = await service.store.usage({ key: "key1", limit: 1 });
  assert.deepEqual(
    [receipt?.ending, receipt?.note, receipt?.costMicro],
    ["cap", "the cap dear of the plan was reached", credits(1)],
  );
  assert.equal((await service.balance()).base.remainingMicro, credits(999), "credits are left");
});

test("an answer that spends the last credits and a cap at once has used up its credits", async () => {
  const base = { credits: 1, every: "P1D", align: "opening" } as const;
  const overage = { ...base, credits: 0 };
  const caps = [{ name: "P1D", ...base, models: ["*"] }];
  await using service = await startService({
    ...options,
    script: babble("on "),
    plan: { base, overage, caps },
  });
  await (await service.chat()).text();
  const [receipt] = await service.store.usage({ key: "key1", limit: 1 });
  assert.deepEqual([receipt?.ending, receipt?.note], ["credits", null]);
});

test("a cap of the plan refuses its models alone, and advises neither to buy nor to wait in vain", async () => {
  const rule = { every: "P1D", align: "opening" } as const;
  const caps = [
    { name: "dear", ...rule, credits: 8, models: ["small"] },
    { name: "PT5H", credits: 1, every: "PT5H", align: "opening", models: ["large"] },
  ] as const;
  const perToken = { prompt: 1_000_000, completion: 1_000_000 };
  const otherModels = ["large", "free"];
  await using service = await startService({ ...options, price: perToken, plan: { caps }, otherModels });
  const ask = (model: string) => service.chat({ model, max_tokens: 1 });
  for (const status of [200, 200]) assert.equal((await ask("small")).status, status);
  const refused = await ask("small");
  const { code, type, message } = await errorOf(refused);
  assert.deepEqual([refused.status, type, code], [402, "insufficient_quota", "cap_reached"]);
  assert.match(message, /^The cap "dear" of this account's plan \(8 credits per P1D\) cannot pay /);
  assert.match(message, new RegExp(`${refreshed}$`));
  assert.equal((await ask("free")).status, 200, "a model that no cap covers");
  const never = (await errorOf(await ask("large"))).message;
  assert.match(
    never,
    /No refresh helps: .* more than the caps ever allow\. Ask the operator of this service for another plan\.$/,
  );
  assert.doesNotMatch(never + message, /more credits|buy/);
});

test("a refresh is named only if the other caps then pay too, and a shorter prompt by all of them", async () => {
  const rule = { align: "opening", models: ["*"] } as const;
  const caps = [
    { name: "P1W", every: "P1W", credits: 12, ...rule },
    { name: "PT5H", every: "PT5H", credits: 9, ...rule },
  ];
  const perToken = { prompt: 1_000_000, completion: 1_000_000 };
  await using service = await startService({ ...options, price: perToken, plan: { caps } });
  const { ledger, account } = service;
  const request = { account, key: "key1", model: "small", price: perToken };
  const ask = async (id: string, least: number) =>
    await ledger.apply(hold(id, credits(least), { ...request, promptTokens: least - 1 }));
  assert.equal((await service.chat({ max_tokens: 1 })).status, 200, "4 credits are spent");
  // 8 are left of the week, and 5 of the 5 hours.
  assert.partialDeepStrictEqual(await ask("a", 9), {
    ...{ kind: "cap_reached", cap: { name: "P1W" }, leftMicro: credits(8), mostMicro: credits(5) },
    refreshes: [{ amountMicro: credits(9) }],
  });
  assert.partialDeepStrictEqual(await ask("b", 6), {
    ...{ kind: "cap_reached", cap: { name: "PT5H" }, leftMicro: credits(5), mostMicro: credits(5) },
    refreshes: [{ amountMicro: credits(8) }],
  });
});

test("credits that would suffice do not let a capped request wait, and the cap is named first", async () => {
  const base = { credits: 0, every: "P1D", align: "opening" } as const;
  const caps = [{ name: "P1D", ...base, credits: 1, models: ["*"] }];
  await using service = await startService({ ...options, plan: { base, overage: base, caps } });
  const messages = [{ role: "user", content: "w ".repeat(50) }];
  assert.equal((await errorOf(await service.chat({ messages }))).code, "cap_reached");
  assert.equal((await errorOf(await service.chat())).code, "insufficient_credits");
});

for (const scope of ["plan", "key"] as const) {
  test(`the message of a 429 names the ${scope} if running requests hold the rest of its cap`, async () => {
    const rule = { every: "P1D", align: "opening" } as const;
    const plan = scope === "plan" ? { caps: [{ name: "P1D", ...rule, credits: 2, models: ["*"] }] } : {};
    await using service = await startService({ ...options, plan });
    if (scope === "key") await setCap(service, "key1", credits(2));
    await holdFor(service, "key1", 2);
    const refused = await service.chat();
    assert.deepEqual([refused.status, refused.headers.get("retry-after")], [429, "1"]);
    const { code, message } = await errorOf(refused);
    assert.equal(code, "credits_reserved");
    const holder = { plan: "a cap of this account", key: "a cap of this key" }[scope];
    assert.match(
      message,
      new RegExp(`^The rest of ${holder} is held by its requests that are still running\\.`),
    );
    await release(service);
    assert.equal((await service.chat()).status, 200);
  });
}

test("an answer waits for credits only if every short cap will get a token back", async () => {
  const rule = { every: "P1D", align: "opening" } as const;
  const caps = [{ name: "P1D", ...rule, credits: 4, models: ["*"] }];
  await using service = await startService({ ...options, script: babble("on "), plan: { caps } });
  await service.addKey();
  // Another key holds the rest of the cap of the plan.
  await holdFor(service, "key2", 3);
  // The cap of the key has nothing to come, so its answer ends.
  await setCap(service, "key1", credits(1));
  await (await service.chat({ max_tokens: 30 })).text();
  const [first] = await service.store.usage({ key: "key1", limit: 1 });
  assert.deepEqual([first?.ending, first?.costMicro], ["cap", credits(1)]);
  // Without it, the answer waits for what the other key gives back.
  const ofPlan = await service.balance();
  assert.equal(ofPlan.caps[0]?.leftMicro, 0);
  await setCap(service, "key1", credits(100));
  const refused = await service.chat({ max_tokens: 8 });
  assert.equal((await errorOf(refused)).code, "credits_reserved");
  await release(service);
  assert.equal((await service.chat({ max_tokens: 8 })).status, 200);
});

test("a stream that a cap pauses goes on in its next window, and when another request gives back", async (t) => {
  const cap = { name: "PT1H", every: "PT1H", align: "opening", credits: 40, models: ["*"] } as const;
  const clock = new BigInt64Array(new SharedArrayBuffer(8));
  clock[0] = BigInt(start);
  await using service = await startService({
    ...options,
    script: babble("on "),
    plan: { caps: [cap] },
    clock,
  });
  await service.addKey();
  const apply = t.mock.method(service.ledger, "apply");
  /** Resolves when the answer has asked for more in vain since the last time. */
  const pausesAt = async (tokens: number) => {
    await until(`${tokens} tokens`, () => service.engine.tokensMade === 100 + tokens);
    apply.mock.resetCalls();
    await until("an extension that gets nothing", async () => {
      const asked = apply.mock.calls.filter(({ arguments: [{ kind }] }) => kind === "extend");
      const outcomes = await Promise.all(asked.map(({ result }) => result));
      return outcomes.some((outcome) => outcome?.kind === "extended" && outcome.amountMicro === 0);
    });
    assert.equal(service.engine.tokensMade, 100 + tokens);
    assert.equal((await service.balance()).caps[0]?.leftMicro, 0);
  };
  await (await service.chat({ max_tokens: 100 })).text();
  // The hour ends while the others run. 10.3 credits are spent, and another request holds 5.
  Atomics.add(clock, 0, 3_590_000n);
  await holdFor(service, "key2", 5);
  const answer = await service.chat({ stream: true, max_tokens: 1000 });
  assert.equal(answer.status, 200);
  await pausesAt(247 - 3);
  Atomics.add(clock, 0, 20_000n);
  await pausesAt(350 - 3);
  await release(service);
  const text = await answer.text();
  const said = [...text.matchAll(/"content":"([^"]*)"/g)].map(([, words]) => words).join("");
  assert.equal(said, "on ".repeat(400 - 3), "nothing is lost or sent twice");
  assert.match(text, /"finish_reason":"length"/);
  const receipt = await service.receipt(String(answer.headers.get("x-request-id")));
  assert.deepEqual(
    [receipt?.ending, receipt?.note, receipt?.completionTokens, receipt?.costMicro],
    ["cap", "the cap PT1H of the plan was reached", 400 - 3, credits(40)],
  );
  const { caps, base } = await service.balance();
  assert.equal(caps[0]?.spentMicro, credits(40), "all of it in the new window");
  assert.equal(base.remainingMicro, credits(1000 - 40 - 10.3));
});

test("a cap of 0 pauses a key, also for a model of price 0", async () => {
  await using service = await startService({ ...options, price: { prompt: 0, completion: 0 } });
  await setCap(service, "key1", 1);
  assert.equal((await service.chat()).status, 200, "a cap that cannot be spent");
  await setCap(service, "key1", 0);
  const answer = await service.chat();
  assert.equal(answer.status, 402);
  const { code, message } = await errorOf(answer);
  assert.equal(code, "cap_reached");
  assert.equal(
    message,
    "The cap of this key (0 credits per P1D) is 0, which pauses the key. Ask for a higher cap, or use another key.",
  );
  const { holds, running } = (await service.store.keyById("key1")) ?? {};
  assert.deepEqual([holds, running], [0, []]);
});
