/** Changes and rotations of keys in the operator API, and what their next request sees. */
import assert from "node:assert/strict";
import { mintKey } from "../../src/accounts/keys.ts";
import { timesAt } from "../../src/ledger/snapshot.ts";
import { revokeKey } from "../fixtures/ledger-rows.ts";
import { type Fields, listOf, operatorTests, refused, type TestOperator } from "../fixtures/operator.ts";
import { errorOf, say, type TestService } from "../fixtures/service.ts";

const operatorTest = operatorTests({ otherModels: ["other"] });
const keys = "/admin/accounts/test/keys";
const path = "/admin/keys/key1";

function using(service: TestService, key: unknown, body: object = {}): Promise<Response> {
  return service.chat(body, { headers: { authorization: `Bearer ${key}` } });
}

async function statusOf(answer: Promise<Response>): Promise<number> {
  const { status, body } = await answer;
  await body?.cancel();
  return status;
}

async function rotate(operator: TestOperator, id: string, overlap?: string): Promise<Fields> {
  const answer = await operator.post(`${path}/rotate`, { operation_id: id, overlap });
  assert.equal(answer.status, 200, answer.text);
  return answer.body;
}

operatorTest("changes settings, each operation once", async (operator) => {
  const change = { operation_id: "c1", name: "ci", requests_per_minute: 5, expires_at: "2100-01-01" };
  const changed = await operator.patch(path, change);
  assert.equal(changed.status, 200, changed.text);
  assert.partialDeepStrictEqual(changed.body, {
    ...{ name: "ci", models: ["*"], expires_at: "2100-01-02T00:00:00.000Z", spending_caps: [] },
    limits: { requests_per_minute: 5, tokens_per_minute: null, concurrent: null },
  });
  const later = { name: null, requests_per_minute: null, expires_at: null };
  const cleared = await operator.patch(path, { operation_id: "c2", ...later });
  assert.partialDeepStrictEqual(cleared.body, { name: null, expires_at: null });
  // The repetition does not undo the second change.
  assert.deepEqual((await operator.patch(path, change)).body, cleared.body);
  const entries = await operator.all("/admin/accounts/test/journal", 10);
  const set = { name: "ci", requests_per_minute: 5, expires_at: "2100-01-02T00:00:00.000Z" };
  const none = { name: null, requests_per_minute: null, expires_at: null };
  assert.deepEqual(
    entries
      .filter(({ kind, operation }) => kind === "key" && operation !== null)
      .map(({ operation, subject, before, after }) => [operation, subject, before, after]),
    [
      ["operation:c1", "key1", none, set],
      ["operation:c2", "key1", set, none],
    ],
  );
});

operatorTest("sets what a key may do in the portal", async (operator) => {
  const usual = await operator.post(keys, { operation_id: "usual" });
  assert.equal(usual.body.portal, "own");
  const changed = await operator.patch(path, { operation_id: "c", portal: "account" });
  assert.deepEqual([changed.status, changed.body.portal], [200, "account"]);
  assert.equal((await operator.get(path)).body.portal, "account");
  const [entry] = (await operator.all("/admin/accounts/test/journal", 10)).toReversed();
  assert.deepEqual(
    [entry?.subject, entry?.before, entry?.after],
    ["key1", { portal: "own" }, { portal: "account" }],
  );
});

type CapOf = readonly [credits: number, every: string, more?: Fields];

function capsOf(...list: CapOf[]): Fields {
  return { spending_caps: list.map(([credits, every, more]) => ({ credits, every, ...more })) };
}

operatorTest(
  "replaces the caps of a key, and what counts the same keeps what was spent",
  async (operator, service) => {
    const capsNow = async () => {
      const list = listOf((await operator.get(path)).body.spending_caps);
      return list.map(({ name, credits, spent_micro, models }) => [name, credits, spent_micro, models]);
    };
    let changes = 0;
    const replace = async (...list: CapOf[]) => {
      changes += 1;
      const answer = await operator.patch(path, { operation_id: `caps ${changes}`, ...capsOf(...list) });
      assert.equal(answer.status, 200, answer.text);
    };
    const only = { models: ["sm*"] };
    await replace([5, "P1W"], [4, "P1D", { name: "dear", align: "calendar", ...only }]);
    assert.equal((await service.chat()).status, 200);
    const spent = Number((await capsNow())[0]?.[2]);
    assert.ok(spent > 0);
    const all = ["*"];
    assert.deepEqual(await capsNow(), [
      ["P1W", 5, spent, all],
      ["dear", 4, spent, ["sm*"]],
    ]);
    // Another amount, other models, the same period in other words, another order.
    await replace(
      [9, "P1D", { name: "dear", align: "calendar", models: ["large", "small"] }],
      [7, "P7D", { name: "P1W" }],
    );
    assert.deepEqual(await capsNow(), [
      ["dear", 9, spent, ["large", "small"]],
      ["P1W", 7, spent, all],
    ]);
    // Another name, alignment or period begins with nothing spent, and the way back keeps it.
    await replace([7, "P1W", { name: "other" }], [9, "P1D", { name: "dear" }]);
    assert.deepEqual(
      (await capsNow()).map((cap) => cap[2]),
      [0, 0],
    );
    await replace([7, "P1W"], [7, "P1W", { align: "calendar" }]);
    assert.deepEqual(
      (await capsNow()).map((cap) => cap[2]),
      [spent, 0],
    );
    await replace();
    assert.deepEqual(await capsNow(), []);
  },
);

operatorTest(
  "a repetition issues the key once, and a change of its caps is another key",
  async (operator) => {
    const once = {
      operation_id: "capped",
      ...capsOf([5, "P1D", { align: "calendar" }], [9, "P1W", { models: ["sm*"] }]),
    };
    const made = await operator.post(keys, once);
    assert.equal(made.status, 201, made.text);
    const again = await operator.post(keys, once);
    assert.deepEqual([again.status, again.body.key, again.body.id], [200, null, made.body.id]);
    for (const other of [
      capsOf([5, "P1D", { align: "calendar" }]),
      capsOf(),
      capsOf([6, "P1D", { align: "calendar" }], [9, "P1W", { models: ["sm*"] }]),
    ])
      refused(await operator.post(keys, { ...once, ...other }), 409, "operation_differs");
  },
);

operatorTest("issues one key for an operation id, also after a revocation", async (operator, service) => {
  const first = await operator.post(keys, { operation_id: "k" });
  assert.equal(first.status, 201, first.text);
  await revokeKey(service.store, String(first.body.id));
  const again = await operator.post(keys, { operation_id: "k" });
  assert.deepEqual([again.status, again.body.key, again.body.id], [200, null, first.body.id]);
  const entries = await operator.all("/admin/accounts/test/journal", 500);
  assert.equal(entries.filter(({ operation }) => operation === "operation:k").length, 1);
});

operatorTest("a key is not changed by the operation that made it", async (operator) => {
  const settings = { name: "n", models: ["*"], expires_at: null, portal: "own" };
  const limits = { requests_per_minute: null, tokens_per_minute: null, concurrent: null };
  const made = await operator.post(keys, { operation_id: "k", name: "n" });
  const key = `/admin/keys/${made.body.id}`;
  assert.equal((await operator.patch(key, { operation_id: "l", name: "other" })).status, 200);
  const again = await operator.patch(key, { operation_id: "k", ...settings, ...limits });
  assert.match(refused(again, 409, "operation_differs"), /made another change before/);
});

const bad: [body: object, code: string, message: RegExp][] = [
  [{}, "missing_required_parameter", /Nothing to change: name at least one setting/],
  [{ spending_caps: [{ credits: 5 }] }, "missing_required_parameter", /spending_caps\[0\]\.every is missing/],
  [{ spending_caps: [{ every: "P1D" }] }, "missing_required_parameter", /spending_caps\[0\]\.credits/],
  [capsOf([-1, "P1D"]), "invalid_value", /credits/],
  [capsOf([1, "P1D", { name: "two words" }]), "invalid_value", /name must be 1 to 40 letters/],
  [capsOf(...[1, 2, 3, 4, 5].map((n) => [1, `P${n}D`] as const)), "invalid_value", /up to 4/],
  [capsOf([5, "PT5H", { align: "calendar" }]), "invalid_value", /period of the cap "PT5H" must be/],
  [capsOf([5, "P1W"], [6, "P1W"]), "invalid_value", /Two caps have the name "P1W" and the same period/],
  [
    capsOf([5, "P7D", { name: "w" }], [6, "P1W", { name: "w" }]),
    "invalid_value",
    /Two caps have the name "w"/,
  ],
  [{ name: "x", models: ["small", "huge"] }, "invalid_value", /no model "huge"\. Defined: small, other\./],
  [{ name: "x", expires_at: "2020-01-01" }, "invalid_value", /would have expired already/],
];
operatorTest("refuses bad settings with one error each, and changes nothing", async (operator) => {
  const before = (await operator.get(path)).body;
  for (const [body, code, message] of bad) {
    const asked = { operation_id: "bad", ...body };
    const answers = [await operator.patch(path, asked)];
    if (Object.keys(body).length > 0) answers.push(await operator.post(keys, asked));
    for (const answer of answers) assert.match(refused(answer, 400, code), message, JSON.stringify(body));
    assert.deepEqual(await operator.all(keys, 10), [before], JSON.stringify(body));
  }
});

operatorTest(
  "rotates once per operation, and keeps one old secret for the overlap",
  async (operator, service) => {
    const first = await rotate(operator, "r1");
    const until = Date.parse(String(first.old_secret_until)) - Date.now();
    assert.ok(until > 86_000_000 && until <= 86_400_000, "a day by default");
    assert.deepEqual(await rotate(operator, "r1"), { ...first, key: null });
    assert.equal(await statusOf(using(service, service.key)), 200);
    assert.equal(await statusOf(using(service, first.key)), 200);
    const second = await rotate(operator, "r2", "PT1H");
    assert.equal(await statusOf(using(service, service.key)), 401);
    assert.equal(await statusOf(using(service, first.key)), 200);
    assert.equal(await statusOf(using(service, second.key)), 200);

    const third = await rotate(operator, "r3", "none");
    assert.equal(third.old_secret_until, null);
    const ended = await using(service, second.key);
    assert.match((await errorOf(ended)).message, /was replaced by a new one, and was valid until/);
    assert.equal(await statusOf(using(service, third.key)), 200);
  },
);

operatorTest("revoking ends both secrets", async (operator, service) => {
  const { key } = await rotate(operator, "r1");
  const { body } = await operator.delete(path);
  assert.equal(body.old_secret_until, null);
  for (const secret of [service.key, key]) {
    assert.equal(await statusOf(using(service, secret)), 401);
    const headers = { authorization: `Bearer ${secret}` };
    assert.equal(await statusOf(service.request("GET", "/v1/models", { headers })), 401);
  }
});

operatorTest("never refuses a valid secret while keys rotate under load", async (operator, service) => {
  let secret: unknown = service.key;
  for (let round = 0; round < 6; round += 1) {
    const before = secret;
    const send = (key: unknown) => Array.from({ length: 10 }, () => statusOf(using(service, key)));
    const during = send(before);
    secret = (await rotate(operator, `r${round}`)).key;
    const statuses = await Promise.all([...during, ...send(before), ...send(secret)]);
    assert.deepEqual(new Set(statuses), new Set([200]), `round ${round}`);
  }
});

operatorTest("follows changed models and limits at once", async (operator, service) => {
  const change = async (id: string, body: object) =>
    assert.equal((await operator.patch(path, { operation_id: id, ...body })).status, 200);
  await change("1", { models: ["other"] });
  assert.equal(await statusOf(service.chat()), 403);
  assert.equal(await statusOf(service.chat({ model: "other" })), 200);
  await change("2", { models: ["*"], requests_per_minute: 1 });
  assert.equal(await statusOf(service.chat()), 200);
  const limited = await service.chat();
  assert.equal((await errorOf(limited)).code, "rate_limit_exceeded");
  await change("3", { requests_per_minute: null });
  assert.equal(await statusOf(service.chat()), 200);
  const { times } = service.store;
  const nowMs = () => times().nowMs;
  const expiresMs = nowMs() + 60_000;
  await change("4", { expires_at: new Date(expiresMs).toISOString() });
  assert.equal(await statusOf(service.chat()), 200);
  service.store.times = () => timesAt(expiresMs);
  assert.equal(await statusOf(service.chat()), 401);
  service.store.times = times;
});

operatorTest(
  "a debt of tokens becomes a shorter wait with a larger limit",
  async (operator, service) => {
    const limit = (id: string, tokens: number) =>
      operator.patch(path, { operation_id: id, tokens_per_minute: tokens });
    await limit("1", 100);
    assert.equal(await statusOf(service.chat()), 200);
    const owing = await service.chat();
    assert.equal((await errorOf(owing)).code, "rate_limit_exceeded");
    assert.equal(owing.headers.get("retry-after"), "60");
    await limit("2", 1000);
    assert.equal(await statusOf(service.chat()), 200);
    await limit("3", 100);
    assert.equal(await statusOf(service.chat()), 429);
  },
  { script: say(...Array.from({ length: 500 }, () => "x ")) },
);

operatorTest("finds the key and account of a secret, even after its end", async (operator, service) => {
  const lookUp = (key: unknown) => operator.post("/admin/keys/lookup", { key });
  const found = await lookUp(service.key);
  assert.equal(found.status, 200, found.text);
  assert.partialDeepStrictEqual(found.body, { secret: "present", usable: true });
  assert.deepEqual(found.body.key, (await operator.get(path)).body);
  assert.ok(!found.text.includes(service.key));

  const rotated = await rotate(operator, "r1", "none");
  assert.partialDeepStrictEqual((await lookUp(service.key)).body, { secret: "old", usable: false });
  const second = await rotate(operator, "r2", "PT1H");
  assert.partialDeepStrictEqual((await lookUp(rotated.key)).body, { secret: "old", usable: true });
  refused(await lookUp(service.key), 404, "key_not_found");
  await operator.delete(path);
  const revoked = await lookUp(second.key);
  assert.partialDeepStrictEqual(revoked.body, { secret: "present", usable: false });
  assert.partialDeepStrictEqual((await lookUp(rotated.key)).body, { secret: "old", usable: false });
});

operatorTest("refuses to look up what is no secret, and repeats nothing of it", async (operator, service) => {
  const lookUp = (key: unknown) => operator.post("/admin/keys/lookup", { key });
  const wrong = `${service.key.slice(0, -1)}${service.key.endsWith("0") ? "1" : "0"}`;
  const answers = [
    refused(await lookUp(wrong), 400, "invalid_value"),
    refused(await lookUp(`${service.key}x`.repeat(200)), 400, "invalid_value"),
    refused(await lookUp("sk-another-service"), 400, "invalid_value"),
    refused(await lookUp(mintKey()), 404, "key_not_found"),
    refused(await lookUp(""), 400, "invalid_value"),
    refused(await lookUp(null), 400, "invalid_type"),
  ];
  for (const message of answers) assert.doesNotMatch(message, /ink_[0-9A-Za-z]{8}|sk-/);
  refused(await operator.post("/admin/keys/lookup", {}), 400, "missing_required_parameter");
});
