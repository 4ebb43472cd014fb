/** The cost of an answer and the balance after it, in headers and in comments of streams. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { StoreUnavailableError } from "../../src/errors.ts";
import { startService, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const messages = [{ role: "user", content: "Hello" }];

describe("what an answer cost", () => {
  let service: TestService;
  before(async () => {
    service = await startService();
  });
  after(() => service[Symbol.asyncDispose]());

  async function ask(body: object, path = "/v1/chat/completions") {
    const headers = { authorization: `Bearer ${service.key}`, "content-type": "application/json" };
    const request = { method: "POST", headers, body: JSON.stringify({ model: "small", messages, ...body }) };
    const response = await fetch(`${service.url}${path}`, request);
    return { headers: response.headers, text: await response.text() };
  }

  /** What the ledger charged for the request, and has left. */
  async function charged(id: string | null) {
    const [receipt] = await service.store.usage({ id: id ?? "", limit: 1 });
    assert.ok(receipt !== undefined);
    const snapshot = await service.store.accountSnapshot(receipt.account);
    const { base, overage, additional } = snapshot?.account ?? assert.fail("no account");
    const grants = [base, overage, ...additional].filter((grant) => grant !== null);
    const leftMicro = grants.reduce((sum, { amountMicro, spentMicro }) => sum + amountMicro - spentMicro, 0);
    return [receipt.costMicro, leftMicro];
  }

  const microOf = (text: string | null | undefined) => Math.round(Number(text) * 1_000_000);

  test("is in the headers of a whole answer, and says what the ledger says", async () => {
    const { headers } = await ask({ max_tokens: 5 });
    const [cost, balance] = ["x-inkwell-cost", "x-inkwell-balance"].map((name) => headers.get(name));
    for (const amount of [cost, balance]) assert.match(amount ?? "", /^\d+(\.\d{1,6})?$/);
    const [costMicro = 0, leftMicro] = await charged(headers.get("x-request-id"));
    assert.ok(costMicro > 0);
    assert.deepEqual([microOf(cost), microOf(balance)], [costMicro, leftMicro]);
  });

  test("is a comment before the end of a stream that has its usage, and only there", async () => {
    const stream = { stream: true, max_tokens: 5 };
    const { headers, text } = await ask({ ...stream, stream_options: { include_usage: true } });
    const pattern = /\n\n: x-inkwell-cost: (\d[\d.]*), x-inkwell-balance: (\d[\d.]*)\ndata: \[DONE\]\n\n$/;
    const [, cost, balance] = pattern.exec(text) ?? assert.fail(text);
    assert.deepEqual([microOf(cost), microOf(balance)], await charged(headers.get("x-request-id")));
    assert.doesNotMatch((await ask(stream)).text, /x-inkwell/);
  });

  test("is missing if the charge is recorded later", async () => {
    const apply = service.ledger.apply.bind(service.ledger);
    service.ledger.apply = async (operation) => {
      if (operation.kind === "settle") throw new StoreUnavailableError("away", { mayBeDone: false });
      return await apply(operation);
    };
    try {
      const { headers, text } = await ask({ max_tokens: 5 });
      assert.match(text, /finish_reason/);
      assert.equal(headers.get("x-inkwell-cost"), null);
      const { text: stream } = await ask({ stream: true, stream_options: { include_usage: true } });
      assert.match(stream, /\[DONE\]/);
      assert.doesNotMatch(stream, /x-inkwell/);
    } finally {
      service.ledger.apply = apply;
    }
    await until("the charges are recorded", () => service.ledger.late === 0);
  });
});
