/**
 * The messages of `402`: each names what the request takes and what is left, and only remedies
 * that help. One credit for each token, so a remedy can be checked by counting.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { keyAt } from "../../src/ledger/key-facts.ts";
import type { Plan } from "../../src/ledger/plan.ts";
import { hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { credits } from "../fixtures/ledger-rows.ts";
import { errorOf, type TestService } from "../fixtures/service.ts";
import { type Front, type FrontOptions, startFront } from "../fixtures/upstream.ts";

const price = { prompt: 1_000_000, completion: 1_000_000 };

interface Case {
  /** Credits of each window, and additional ones. */
  base: number;
  overage?: number;
  additional?: number;
  /** Cap of the key. */
  cap?: number;
  /** Credits that an earlier request has cost. */
  spent?: number;
  /** Tokens that the server counts. Absent: it counts none, and the template has 512 tokens. */
  counted?: number;
  /** Characters of the prompt. */
  length?: number;
  code?: "insufficient_credits" | "cap_reached";
  /** Tokens of the prompt that the hold pays for, and credits that are left. */
  needs: [tokens: number, left: number];
  /** Most tokens of a shorter prompt that what is left pays for. Absent: none. */
  shorter?: number;
  /** The window whose refresh pays for this prompt. Absent: none. */
  refresh?: "base" | "overage" | "cap";
  /** The window whose refresh pays for a shorter prompt alone, and the most tokens of it. */
  refreshForShorter?: ["base" | "overage" | "cap", tokens: number];
  /** Another plan, more credits or a higher cap are needed. */
  asks?: boolean;
  /** Not even the shortest prompt can ever be paid. */
  isNever?: boolean;
}

const cases: [what: string, each: Case][] = [
  [
    "all credits of the plan are left, and do not pay for the template",
    { base: 30, needs: [529, 30], asks: true, isNever: true },
  ],
  [
    "the credits of the plan are spent, and never pay for the template",
    { base: 30, spent: 30, needs: [529, 0], asks: true, isNever: true },
  ],
  [
    "both windows together do not pay for the template",
    { base: 300, overage: 228, needs: [529, 528], asks: true, isNever: true },
  ],
  [
    "the plan refills nothing, and what was bought does not pay for the template",
    { base: 0, additional: 100, needs: [529, 100], asks: true, isNever: true },
  ],
  [
    "all credits are left, and pay for a shorter prompt",
    { base: 600, length: 200, needs: [728, 600], shorter: 599, asks: true },
  ],
  [
    "a refresh pays for the prompt, and a shorter one has the same template",
    { base: 600, spent: 300, needs: [529, 300], refresh: "base" },
  ],
  [
    "a refresh or a shorter prompt helps",
    { base: 1000, spent: 400, length: 200, needs: [728, 600], shorter: 599, refresh: "base" },
  ],
  [
    "a refresh pays for a shorter prompt alone",
    { base: 600, spent: 500, length: 200, needs: [728, 100], refreshForShorter: ["base", 599], asks: true },
  ],
  [
    "the next refresh brings too little, and the one after it enough",
    { base: 100, overage: 700, spent: 800, needs: [529, 0], refresh: "overage" },
  ],
  [
    "a refresh pays together with what was bought",
    { base: 500, additional: 100, spent: 500, needs: [529, 100], refresh: "base" },
  ],
  [
    "a counted prompt is too long for the plan",
    { base: 30, counted: 50, length: 200, needs: [50, 30], shorter: 29, asks: true },
  ],
  [
    "a counted prompt has hardly any text",
    { base: 30, counted: 50, needs: [50, 30], asks: true, isNever: true },
  ],
  [
    "a full cap never pays for the template",
    { base: 9000, cap: 30, needs: [529, 30], asks: true, isNever: true, code: "cap_reached" },
  ],
  [
    "the refresh of the cap pays for the prompt",
    { base: 9000, cap: 600, spent: 300, needs: [529, 300], refresh: "cap", code: "cap_reached" },
  ],
  [
    "a full cap pays for a shorter prompt alone",
    {
      base: 9000,
      cap: 600,
      spent: 500,
      length: 200,
      needs: [728, 100],
      asks: true,
      refreshForShorter: ["cap", 599],
      code: "cap_reached",
    },
  ],
  [
    "the rest of the cap pays for a shorter prompt",
    { base: 9000, cap: 600, length: 200, needs: [728, 600], shorter: 599, asks: true, code: "cap_reached" },
  ],
];

function optionsOf({ base, overage = 0, counted }: Case): FrontOptions {
  const plan: Partial<Plan> = {
    base: { credits: base, every: "P1D", align: "opening" },
    overage: { credits: overage, every: "P1M", align: "opening" },
  };
  return { dialect: counted === undefined ? "compatible" : "vllm", service: { price, plan } };
}

async function prepare({ service, upstream }: Front, each: Case): Promise<void> {
  const { ledger, account } = service;
  const { additional, cap, spent = 0, counted } = each;
  upstream.playOther = (call) => call.answer(200, JSON.stringify({ count: counted }));
  if (cap !== undefined) {
    const set = { caps: [{ amountMicro: credits(cap), every: "PT5H", byOperator: true }] };
    await ledger.apply({ kind: "key", account, key: "key1", op: "cap", set, by: "test" });
  }
  if (spent > 0) {
    const promptTokens = spent;
    const held = hold("earlier", credits(spent), {
      account,
      key: "key1",
      model: "small",
      price,
      promptTokens,
    });
    assert.equal((await ledger.apply(held)).kind, "held");
    await ledger.apply({ ...settle("earlier", 0, { account }), usage: tokens(spent, 0) });
  }
  if (additional !== undefined) {
    const amountMicro = credits(additional);
    await ledger.apply({ kind: "topup", account, payment: "p", amountMicro, by: "test" });
  }
}

async function endOf(window: "base" | "overage" | "cap", service: TestService): Promise<string> {
  const balance = await service.balance();
  const key = await service.store.keyById("key1");
  const endsMs =
    window === "cap" ? key && keyAt(key, Date.now()).counters[0]?.untilMs : balance[window].endsMs;
  assert.ok(endsMs != null);
  return new Date(endsMs).toISOString();
}

for (const [what, each] of cases) {
  test(`402 names only remedies that help: ${what}`, async () => {
    await using front = await startFront(optionsOf(each));
    await prepare(front, each);
    const messages = [{ role: "user", content: "x".repeat(each.length ?? 1) }];
    const response = await front.chat({ messages, max_tokens: 1 });
    assert.deepEqual([response.status, response.headers.get("x-should-retry")], [402, "false"]);
    const { code, type, message } = await errorOf(response);
    assert.deepEqual([type, code], ["insufficient_quota", each.code ?? "insufficient_credits"]);
    const [tokens, left] = each.needs;
    assert.ok(message.includes(`they take ${tokens + 1} credits, and ${left} are left.`), message);
    const shorter = /what is left pays for a prompt of up to (\d+) tokens/.exec(message)?.[1];
    assert.equal(shorter, each.shorter?.toString(), message);
    assert.equal(/shorter prompt:/.test(message), each.shorter !== undefined, message);
    const [, at, most] =
      /refresh(?:es)? at (\S+Z)(?:, and then pays? for a prompt of up to (\d+))?/.exec(message) ?? [];
    const [window, mostTokens] = each.refreshForShorter ?? [each.refresh];
    assert.equal(at, window && (await endOf(window, front.service)), message);
    assert.equal(most, mostTokens?.toString(), message);
    assert.equal(/(?:A|a)sk (?:the operator|for a higher cap)/.test(message), each.asks ?? false, message);
    assert.equal(/No refresh helps: even the shortest prompt/.test(message), each.isNever ?? false, message);
    assert.equal(front.upstream.calls.length, 0);
  });
}
