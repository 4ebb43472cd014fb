/** Receipts in the operator API with every filter, as JSON and CSV; models, holds. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ListTooSlowError } from "../../src/store/store.ts";
import {
  type Fields,
  fieldsOf,
  listOf,
  operatorTests,
  refused,
  startOperator,
  type TestOperator,
} from "../fixtures/operator.ts";
import { babble, startService, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const operatorTest = operatorTests({ otherModels: ["other"] });

async function idOf(answer: Response): Promise<string> {
  await answer.text();
  assert.equal(answer.status, 200);
  return answer.headers.get("x-request-id") ?? "";
}

/**
 * Two requests of account `test`, by two keys on two models, then two of `ada`; their ids in that
 * order.
 */
async function fourRequests(operator: TestOperator, service: TestService): Promise<string[]> {
  await operator.post("/admin/accounts", { id: "ada", plan: "test" });
  const second = await service.addKey();
  const adas = String((await operator.post("/admin/accounts/ada/keys", { operation_id: "k" })).body.key);
  const by = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });
  return [
    await idOf(await service.chat()),
    await idOf(await service.chat({ model: "other" }, by(second))),
    await idOf(await service.chat({ stream: true }, by(adas))),
    await idOf(await service.chat({ max_tokens: 1 }, by(adas))),
  ];
}

operatorTest(
  "finds a receipt by the client's request id; its cost can be recomputed",
  async (operator, service) => {
    const id = await idOf(await service.chat({ messages: [{ role: "user", content: "one two three" }] }));
    const { body } = await operator.get(`/admin/usage?request_id=${id}`);
    const [receipt, ...others] = listOf(body.data);
    assert.deepEqual(others, []);
    assert.ok(receipt !== undefined);
    const known = { request_id: id, account: "test", key: "key1", model: "small" };
    assert.partialDeepStrictEqual(receipt, { ...known, ending: "stop", estimated: false });
    const number = (name: string) => Number(receipt[name]);
    assert.equal(
      (number("prompt_tokens") - number("cached_tokens")) * number("price_prompt") +
        number("cached_tokens") * number("price_cached_prompt") +
        number("completion_tokens") * number("price_completion"),
      number("cost_micro"),
    );
    assert.ok(number("cost_micro") > 0);
    assert.equal(number("base_micro"), number("cost_micro"));
  },
);

operatorTest("refuses a list that exceeds the time limit, with advice", async (operator, service) => {
  const usage = service.store.usage.bind(service.store);
  service.store.usage = () => Promise.reject(new ListTooSlowError(10_000, null));
  const answer = await operator.get("/admin/usage?model=rare");
  service.store.usage = usage;
  refused(answer, 400, "list_too_slow");
  assert.match(JSON.stringify(answer.body), /longer than 10 s .*set account/);
});

operatorTest("filters receipts by account, key, model and time, in pages", async (operator, service) => {
  const [first, second, third, fourth] = await fourRequests(operator, service);
  const ids = async (query: string) =>
    (await operator.all(`/admin/usage?${query}`, 500)).map(({ request_id }) => request_id);
  for (const limit of [1, 2, 3, 4, 5]) {
    const rows = await operator.all("/admin/usage", limit);
    const found = rows.map(({ request_id }) => request_id);
    assert.deepEqual(found, [third, fourth, first, second], `pages of ${limit}`);
  }
  refused(await operator.get("/admin/usage?account=nobody&format=csv"), 404, "account_not_found");
  for (const [query, found] of Object.entries({
    "account=test": [first, second],
    "key=key2": [second],
    "model=small": [third, fourth, first],
    "model=small&account=ada": [third, fourth],
    "from=2100-01-01": [],
    "to=2000-01-01T00:00:00Z": [],
  }))
    assert.deepEqual(await ids(query), found, query);
  const at = String(
    listOf((await operator.get(`/admin/usage?request_id=${second}`)).body.data)[0]?.finished_at,
  );
  const later = new Date(Date.parse(at) + 1).toISOString();
  assert.ok((await ids(`from=${at}`)).includes(second), "from counts");
  assert.ok(!(await ids(`to=${at}`)).includes(second), "to does not");
  assert.ok((await ids(`to=${later}`)).includes(second));
});

operatorTest("lists the newest receipts of an account first, in pages", async (operator, service) => {
  const [first, second, third, fourth] = await fourRequests(operator, service);
  const pagesOf = async (query: string, limit: number) =>
    (await operator.all(`/admin/usage?order=newest&${query}`, limit)).map(({ request_id }) => request_id);
  for (const limit of [1, 2, 3]) {
    assert.deepEqual(await pagesOf("account=test", limit), [second, first], `pages of ${limit}`);
    assert.deepEqual(await pagesOf("account=ada", limit), [fourth, third], `pages of ${limit}`);
    assert.deepEqual(await pagesOf("key=key1", limit), [first], `pages of ${limit}`);
  }
  assert.deepEqual(await pagesOf("account=test&model=other", 5), [second]);
  const csv = (await operator.get("/admin/usage?order=newest&account=ada&format=csv")).text;
  assert.ok(csv.indexOf(`${fourth}`) < csv.indexOf(`${third}`));
  const message = refused(await operator.get("/admin/usage?order=newest"), 400, "invalid_value");
  assert.match(message, /needs account or key/);
});

operatorTest("finds receipts after a journal number, as JSON and CSV", async (operator, service) => {
  const known = await idOf(await service.chat());
  const [receipt] = listOf((await operator.get(`/admin/usage?request_id=${known}`)).body.data);
  const since = `account=test&after=test:${receipt?.journal_seq}`;
  assert.deepEqual(await operator.all(`/admin/usage?${since}`, 500), []);
  const next = await idOf(await service.chat());
  const [row, ...more] = await operator.all(`/admin/usage?${since}`, 500);
  assert.deepEqual([row?.request_id, more], [next, []]);
  const csv = (await operator.get(`/admin/usage?${since}&format=csv`)).text;
  const [, line = "", ...others] = csv.split("\r\n");
  assert.ok(line.startsWith(`${next},`));
  assert.deepEqual(others, [""]);
});

operatorTest("refuses an invalid filter by its name", async (operator) => {
  for (const query of [
    "after=test:x",
    "to=2026-01-01&from=2026-12-01",
    "to=2026-12-01&from=2026-12-01",
    "to=2026-12-01&from=2026-12-02&format=csv",
  ]) {
    const message = refused(await operator.get(`/admin/usage?${query}`), 400, "invalid_value");
    assert.ok(message.startsWith(query.split("=")[0] ?? ""), message);
  }
});

operatorTest("returns all receipts as CSV, with the fields of the JSON", async (operator, service) => {
  await fourRequests(operator, service);
  const rows = await operator.all("/admin/usage", 500);
  const asked = await operator.ask("GET", "/admin/usage", { headers: { accept: "text/csv, */*;q=0.1" } });
  const named = await operator.get("/admin/usage?format=csv");
  assert.equal(asked.text, named.text);
  assert.match(asked.headers.get("content-type") ?? "", /^text\/csv; charset=utf-8/);
  const [names = "", ...lines] = asked.text.trimEnd().split("\r\n");
  assert.deepEqual(
    lines.map((line) => line.split(",")),
    rows.map((row) => names.split(",").map((name) => String(row[name] ?? ""))),
  );
  const json = await operator.ask("GET", "/admin/usage?format=json", { headers: { accept: "text/csv" } });
  assert.equal(listOf(json.body.data).length, 4);
  const filtered = await operator.get("/admin/usage?format=csv&account=ada&to=2000-01-01");
  assert.equal(filtered.text, `${names}\r\n`);
  refused(await operator.get("/admin/usage?format=csv&limit=5"), 400, "invalid_value");
});

operatorTest("reads a CSV page by page, and breaks it off if the store fails", async (operator, service) => {
  const id = await idOf(await service.chat());
  const [row] = await service.store.usage({ id, limit: 1 });
  assert.ok(row !== undefined);
  const { usage } = service.store;
  const limits: number[] = [];
  let pages = 5;
  let last = 0;
  service.store.usage = async ({ limit, after }) => {
    limits.push(limit);
    pages -= 1;
    if (pages < 0) throw new Error("eaten by a moth");
    const from = after?.seq ?? 0;
    return Array.from({ length: pages === last ? 1 : limit }, (_, n) => ({ ...row, seq: from + n + 1 }));
  };
  const { text } = await operator.get("/admin/usage?format=csv");
  assert.deepEqual(limits, [500, 500, 500, 500, 500]);
  assert.equal(text.trimEnd().split("\r\n").length, 1 + 4 * 500 + 1);
  pages = 3;
  last = -1;
  await assert.rejects(
    operator.get("/admin/usage?format=csv"),
    "a CSV that is not whole does not end like one",
  );
  service.store.usage = usage;
});

operatorTest("lists models with state, price and load", async (operator, service) => {
  const models = listOf((await operator.get("/admin/models")).body.data);
  assert.deepEqual(
    models.map(({ id, state, pricing }) => [id, state, pricing]),
    ["small", "other"].map((id) => [id, "ready", { prompt: 10, completion: 30, cached_prompt: 10 }]),
  );
  assert.deepEqual(await operator.all("/admin/models", 1), models);
  assert.deepEqual(await operator.all("/admin/nodes", 1), []);
  await service.engine.close();
  assert.equal(listOf((await operator.get("/admin/models")).body.data)[0]?.state, "closed");
});

operatorTest(
  "lists running requests with their holds until they end",
  async (operator, service) => {
    const going = new AbortController();
    const running = await service.chat({ stream: true, max_tokens: 100 }, { signal: going.signal });
    const reader = running.body?.getReader();
    await reader?.read();
    const holds = await operator.all("/admin/holds", 10);
    assert.deepEqual(
      holds.map(({ request_id, account, key, model }) => [request_id, account, key, model]),
      [[running.headers.get("x-request-id"), "test", "key1", "small"]],
    );
    assert.ok(Number(holds[0]?.held_micro) > 0);
    assert.equal((await operator.all("/admin/holds?account=test", 1)).length, 1);
    await operator.post("/admin/accounts", { id: "ada", plan: "test" });
    assert.deepEqual(await operator.all("/admin/holds?account=ada", 1), []);
    const { load }: Fields = listOf((await operator.get("/admin/models")).body.data)[0] ?? {};
    assert.deepEqual(load, { running: 1, waiting: 0, paused: 0 });
    going.abort();
    await reader?.cancel().catch(() => {});
    await until("no hold is open", async () => (await operator.all("/admin/holds", 10)).length === 0);
  },
  { script: babble("word ", { tokenDelayMs: 50 }) },
);

operatorTest("sums usage by group, in pages with the same total, and as CSV", async (operator, service) => {
  await fourRequests(operator, service);
  const sums = async (query: string) => (await operator.get(`/admin/usage/sums?${query}`)).body;
  const whole = await sums("by=account");
  assert.deepEqual(
    listOf(whole.data).map(({ account, requests, final }) => ({ account, requests, final })),
    [
      { account: "ada", requests: 2, final: false },
      { account: "test", requests: 2, final: false },
    ],
  );
  for (const after of ["", "&after=ada"])
    assert.deepEqual((await sums(`by=account&limit=1${after}`)).total, whole.total);
  assert.deepEqual(await operator.all("/admin/usage/sums?by=account", 1), whole.data);

  const byModel = listOf((await sums("by=model&account=test")).data);
  assert.deepEqual(
    byModel.map(({ model, requests }) => `${model} ${requests}`),
    ["other 1", "small 1"],
  );
  const byCost = listOf((await sums("by=key&order=cost")).data).map(({ cost_micro }) => Number(cost_micro));
  assert.deepEqual(
    byCost,
    byCost.toSorted((a, b) => b - a),
  );
  assert.equal(byCost.length, 3);
  assert.deepEqual(await operator.all("/admin/usage/sums?by=key", 1), (await sums("by=key")).data);
  refused(await operator.get("/admin/usage/sums?by=key&after=x"), 400, "invalid_value");
  assert.deepEqual((await sums("by=day&to=2001-01-01")).data, []);

  const csv = await operator.ask("GET", "/admin/usage/sums?by=account", { headers: { accept: "text/csv" } });
  assert.equal(csv.headers.get("content-type"), "text/csv; charset=utf-8; header=present");
  const lines = csv.text.split("\r\n");
  assert.equal(lines.length, 4);
  assert.match(
    lines[0] ?? "",
    /^day,account,owner,email,external_id,key,model,final,requests,late_charges,prompt_tokens,/,
  );

  for (const [query, param] of [
    ["by=day&from=2027-01-31T12:00:00Z", "from"],
    ["by=day&from=2027-01-31&to=2027-01-31", "to"],
    ["by=day&after=x", "after"],
    ["by=model&order=cost&after=x", "after"],
    ["by=model&format=csv&limit=3", "limit"],
  ] as const) {
    const answer = await operator.get(`/admin/usage/sums?${query}`);
    assert.deepEqual([answer.status, fieldsOf(answer.body.error).param], [400, param], query);
  }
});

test("sums by account have names, and what was paid in money", async () => {
  await using service = await startService();
  const currency = { code: "EUR", priceMicro: 100_000_000_000 };
  await using operator = await startOperator(service, [], { currency: () => currency });
  const contact = { owner: "Ada Lovelace", email: "ada@uni.example", external_id: "crm-7" };
  await operator.patch("/admin/accounts/test/contact", contact);
  await idOf(await service.chat());
  const { data, total, currency: code } = (await operator.get("/admin/usage/sums?by=account")).body;
  const [row, ...others] = listOf(data);
  assert.deepEqual([others, code], [[], "EUR"]);
  // 0.00009 credits, 1,000 of which are 100,000 EUR.
  assert.partialDeepStrictEqual(row, { account: "test", ...contact, cost_micro: 90, paid_money: "0.01" });
  assert.partialDeepStrictEqual(total, { paid_money: "0.01", overage_money: "0.00" });
  const { text } = await operator.get("/admin/usage/sums?by=account&format=csv");
  assert.match(
    text,
    /\r\n,test,Ada Lovelace,ada@uni\.example,crm-7,,,false,.*,0\.00009,.*,0\.01,0\.00,EUR\r\n$/,
  );
  const [day] = listOf((await operator.get("/admin/usage/sums?by=day")).body.data);
  assert.partialDeepStrictEqual(day, { account: null, owner: null, email: null, external_id: null });
});

operatorTest("sums the last hours by hour and model, of all accounts or one", async (operator, service) => {
  await idOf(await service.chat());
  const all = (await operator.get("/admin/usage/hours")).body;
  const [row, ...others] = listOf(all.data);
  assert.equal(others.length, 0);
  assert.deepEqual([row?.requests, row?.model], [1, null]);
  assert.ok(String(row?.hour) >= String(all.from) && String(row?.hour) < String(all.to));
  assert.equal(Date.parse(String(all.to)) - Date.parse(String(all.from)), 24 * 3_600_000);
  const [total] = listOf((await operator.get("/admin/usage/sums")).body.data);
  assert.deepEqual([row?.cost_micro, row?.prompt_tokens], [total?.cost_micro, total?.prompt_tokens]);
  const byModel = (await operator.get("/admin/usage/hours?by=model&account=test&hours=168")).body;
  assert.deepEqual(
    listOf(byModel.data).map(({ model, requests }) => [model, requests]),
    [["small", 1]],
  );
  assert.deepEqual((await operator.get("/admin/usage/hours?model=none")).body.data, []);
});
