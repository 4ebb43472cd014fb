/** People behind the key of a front end: who pays, who is refused, and what the key caps. */
import assert from "node:assert/strict";
import { request as httpRequest } from "node:http";
import { test } from "node:test";
import { StoreUnavailableError } from "../../src/errors.ts";
import type { Plan } from "../../src/ledger/plan.ts";
import type { ActsFor } from "../../src/ledger/rows.ts";
import { changeLogRow } from "../../src/store/change-log.ts";
import { pageRowsMax } from "../../src/store/store.ts";
import { holdRequest } from "../fixtures/held-request.ts";
import { credits, frontEndOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { listOf, refused, startOperator } from "../fixtures/operator.ts";
import { startPortal } from "../fixtures/portal.ts";
import { babble, errorOf, jsonOf, say, startService, type TestService } from "../fixtures/service.ts";
import { until } from "../fixtures/until.ts";

const header = "x-openwebui-user-id";
const student = planOf("student", 100, 0);
const actsFor = frontEndOf("webui", header, { plan: "student", newAccountsPerDay: 3 });

function start(change: Partial<ActsFor> = {}, options: Parameters<typeof startService>[0] = {}) {
  const key = { actsFor: { ...actsFor, ...change }, ...options.key };
  return startService({
    price: { prompt: 1_000_000, completion: 1_000_000 },
    otherPlans: [student],
    ...options,
    key,
  });
}

const as = (person: string) => ({ headers: { [header]: person } });

async function codeOf(answer: Response): Promise<string> {
  return (await errorOf(answer)).code;
}

async function accountOf({ store }: TestService, value: string, name = "webui"): Promise<string> {
  const holder = await store.findHolder(`front_end:${name}`, value);
  assert.ok(holder !== null, `${value} has an account`);
  return holder.account.id;
}

test("each request is paid by the account of its person, and names the key of the front end", async () => {
  await using service = await start();
  for (const person of ["ada", "bob", "ada"]) {
    const answer = await service.chat({}, as(person));
    assert.equal(answer.status, 200);
    await answer.text();
  }
  const [ada, bob] = [await accountOf(service, "ada"), await accountOf(service, "bob")];
  assert.match(ada, /^p-[0-9a-f]{16}$/);
  const receipts = await service.store.usage({ key: "key1", limit: pageRowsMax });
  assert.deepEqual(receipts.map(({ account }) => account).toSorted(), [ada, ada, bob].toSorted());
  assert.equal((await service.balance()).base.remainingMicro, credits(1000), "the front end pays nothing");
  const row = await service.store.keyById("key1");
  assert.deepEqual([row?.holds, row?.running, row?.account], [0, [], service.account]);
});

test("models and balance are those of the person, or of the key's account without one", async () => {
  await using service = await start();
  await (await service.chat({}, as("ada"))).text();
  const creditsOf = async (options: object) => {
    const answer = await service.request("GET", "/v1/balance", options);
    assert.equal(answer.status, 200);
    return (await jsonOf<{ balances: { base: { credits: number } } }>(answer)).balances.base.credits;
  };
  assert.equal(await creditsOf({}), 1000);
  assert.equal(await creditsOf(as("ada")), 95, "3 tokens of the prompt, 2 of the answer");
  assert.equal((await service.request("GET", "/v1/models", as("ada"))).status, 200);
});

test("chat without a person is refused, and so are an empty, a long and a repeated header", async () => {
  await using service = await start();
  assert.equal(await codeOf(await service.chat()), "missing_person");
  assert.equal(await codeOf(await service.chat({}, as(" "))), "missing_person");
  assert.equal(await codeOf(await service.chat({}, as("x".repeat(256)))), "missing_person");
  const status = await new Promise<number | undefined>((resolve, reject) => {
    const headers = [
      "authorization",
      `Bearer ${service.key}`,
      "content-type",
      "application/json",
      "content-length",
      "2",
      "host",
      "localhost",
      header,
      "ada",
      header,
      "bob",
    ];
    const sent = httpRequest(`${service.url}/v1/chat/completions`, { method: "POST", headers }, (answer) => {
      answer.resume();
      resolve(answer.statusCode);
    });
    sent.on("error", reject).end("{}");
  });
  assert.equal(status, 400);
  assert.equal((await service.store.listPeople({ limit: 10 })).length, 0, "nobody was added");
});

test("a person who could not be added is none of the day's new accounts", async (t) => {
  await using service = await start({ newAccountsPerDay: 1 });
  const away = () => Promise.reject(new StoreUnavailableError("the database is away", { mayBeDone: false }));
  const added = t.mock.method(service.store, "addPerson", away);
  assert.equal((await service.chat({}, as("ada"))).status, 503);
  added.mock.restore();
  assert.equal((await service.chat({}, as("ada"))).status, 200);
  assert.equal(await codeOf(await service.chat({}, as("bob"))), "rate_limit_exceeded");
});

test("a person whose addition is unclear stays one of the day's new accounts", async (t) => {
  await using service = await start({ newAccountsPerDay: 1 });
  const { addPerson } = service.store;
  const added = t.mock.method(service.store, "addPerson", async (...args: Parameters<typeof addPerson>) => {
    await addPerson.apply(service.store, args);
    throw new StoreUnavailableError("the answer is lost");
  });
  assert.equal((await service.chat({}, as("ada"))).status, 503);
  added.mock.restore();
  assert.equal(await codeOf(await service.chat({}, as("bob"))), "rate_limit_exceeded");
  assert.equal((await service.chat({}, as("ada"))).status, 200);
});

test("two spellings of a value are one person, in NFC and lower case", async () => {
  await using service = await start();
  const utf8 = (text: string) => Buffer.from(text, "utf8").toString("latin1");
  for (const spelling of ["Zoë@X.example", "zoe\u0308@x.example"])
    await (await service.chat({}, as(utf8(spelling)))).text();
  const people = await service.store.listPeople({ limit: 10 });
  assert.deepEqual(
    people.map(({ sub }) => sub),
    ["zoë@x.example"],
  );
});

test("a value that could be taken for another one is refused", async () => {
  await using service = await start({ newAccountsPerDay: 10 });
  const utf8 = (text: string) => Buffer.from(text, "utf8").toString("latin1");
  for (const value of ["\u212aate", "\u00a0kate", "kate\ufeff", "erased:kate", "ka\u200bte"])
    assert.equal(await codeOf(await service.chat({}, as(utf8(value)))), "missing_person", value);
  assert.equal(await codeOf(await service.chat({}, as("\u00e9"))), "missing_person", "it is not UTF-8");
  assert.deepEqual(await service.store.listPeople({ limit: 10 }), []);
});

test("refused requests of one person leave the others their allowance", async () => {
  await using service = await start({}, { refusedBytesPerMinute: 200_000 });
  const messages = [{ role: "user", content: "x".repeat(50_000) }];
  const send = async (person: string) => {
    const answer = await service.chat({ model: "nothing", messages }, as(person));
    return await codeOf(answer);
  };
  const codes = new Set<string>();
  for (let n = 0; n < 8; n += 1) codes.add(await send("eve"));
  assert.deepEqual(codes, new Set(["model_not_found", "too_many_refusals"]));
  assert.equal((await service.chat({}, as("ada"))).status, 200);
});

test("in the portal nobody gets the secret of the key, widens it, or chats with it", async () => {
  await using service = await start();
  await using portal = await startPortal(service);
  const manager = await portal.signIn(await service.addKey({ id: "manager", portal: "account" }));
  const rotation = { operation_id: "r" };
  const rotated = await portal.as(manager, "POST", "/api/keys/key1/rotate", rotation);
  assert.match(refused(rotated, 403, "not_permitted"), /front end/);
  const wider = { operation_id: "w", requests_per_minute: null };
  await service.ledger.apply({
    kind: "key",
    account: service.account,
    key: "key1",
    op: "narrow",
    by: "test",
    set: { requestsPerMinute: 5 },
  });
  refused(await portal.as(manager, "PATCH", "/api/keys/key1", wider), 403, "not_permitted");
  const own = await portal.signIn(service.key);
  const body = { model: "small", stream: true, messages: [{ role: "user", content: "hi" }] };
  refused(await portal.as(own, "POST", "/api/chat", body), 403, "not_permitted");
  assert.equal((await service.balance()).base.remainingMicro, credits(1000));
});

test("nobody reaches an account by naming it", async () => {
  await using service = await start({ newAccountsPerDay: 10 });
  await (await service.chat({}, as("ada"))).text();
  const ada = await accountOf(service, "ada");
  const [person] = await service.store.listPeople({ limit: 1 });
  for (const name of [ada, service.account, person?.id ?? "", "front_end:webui"]) {
    await (await service.chat({}, as(name))).text();
    assert.notEqual(await accountOf(service, name), name);
    assert.notEqual(await accountOf(service, name), ada);
  }
  const ordinary = await service.addKey();
  const answer = await service.chat(
    {},
    { headers: { authorization: `Bearer ${ordinary}`, [header]: "ada" } },
  );
  assert.equal(answer.status, 200);
  const receipts = await service.store.usage({ key: "key2", limit: 1 });
  assert.equal(receipts[0]?.account, service.account, "the header means nothing with another key");
});

test("a front end that opens no accounts refuses unknown people", async () => {
  await using service = await start({ plan: null, newAccountsPerDay: null });
  const answer = await service.chat({}, as("ada"));
  assert.equal(answer.status, 403);
  assert.equal(await codeOf(answer), "unknown_person");
  assert.equal((await service.store.listPeople({ limit: 10 })).length, 0);
});

test("a front end whose plan is retired refuses unknown people, and counts none of them", async () => {
  await using service = await start({ newAccountsPerDay: 1 });
  const { store } = service;
  const apply = (...plans: Plan[]) => store.applyPlans(plansOf(...plans), { force: true, by: "test" });
  await apply(planOf("other", 1, 1));
  for (const person of ["ada", "bob"]) {
    const answer = await service.chat({}, as(person));
    assert.equal(answer.status, 403);
    assert.equal(await codeOf(answer), "unknown_person");
  }
  assert.equal((await store.listPeople({ limit: 10 })).length, 0);
  await apply(student);
  assert.equal((await service.chat({}, as("bob"))).status, 200);
});

test("an operator gives people an account before their first request", async () => {
  await using service = await start({ plan: null, newAccountsPerDay: null });
  await using operator = await startOperator(service);
  const add = (body: object) =>
    operator.post("/admin/people", { front_end: "webui", account: "ada", ...body });
  assert.equal((await operator.post("/admin/accounts", { id: "ada", plan: "student" })).status, 201);
  const added = await add({ value: "User-7" });
  assert.partialDeepStrictEqual(added.body, { issuer: "front_end:webui", sub: "user-7", account: "ada" });
  assert.deepEqual((await add({ value: "USER-7" })).body, added.body, "a repetition changes nothing");
  for (const person of ["user-7", "USER-7"]) {
    const answer = await service.chat({}, as(person));
    assert.equal(answer.status, 200);
    await answer.text();
  }
  const receipts = await service.store.usage({ key: "key1", limit: pageRowsMax });
  assert.deepEqual(
    receipts.map(({ account }) => account),
    ["ada", "ada"],
  );
  assert.equal(await codeOf(await service.chat({}, as("user-8"))), "unknown_person");
  // Another account of the person is refused, and so is what no header can name.
  assert.equal((await operator.post("/admin/accounts", { id: "bob", plan: "student" })).status, 201);
  refused(await add({ value: "user-7", account: "bob" }), 409, "person_linked");
  refused(await add({ value: "user-9", account: "carl" }), 404, "account_not_found");
  assert.match(refused(await add({ front_end: "webiu", value: "user-9" }), 400, "invalid_value"), /webui/);
  for (const value of [" user-9", "\u212a", "erased:person_0000000000000001", "a\u200bb"])
    assert.match(refused(await add({ value }), 400, "invalid_value"), /^value /);
  assert.equal((await service.store.listPeople({ limit: 9 })).length, 1);
  const { body: log } = await operator.get("/admin/log?account=ada&kind=person");
  assert.equal(listOf(log.data).length, 1);
});

test("a front end opens at most so many accounts a day, and serves known people after it", async () => {
  await using service = await start();
  const people = Array.from({ length: 12 }, (_, n) => `person ${n}`);
  // Each person sends two requests at once.
  const answers = await Promise.all(
    [...people, ...people].map((person) => service.chat({ max_tokens: 2 }, as(person))),
  );
  const codes = await Promise.all(answers.map(async (answer) => (answer.ok ? "ok" : await codeOf(answer))));
  assert.deepEqual(new Set(codes), new Set(["ok", "rate_limit_exceeded"]));
  const opened = await service.store.listPeople({ limit: 100 });
  assert.ok(opened.length <= 3 && opened.length > 0, `${opened.length} accounts`);
  const known = opened[0]?.sub ?? "";
  assert.equal((await service.chat({}, as(known))).status, 200);
});

test("two requests of a new person at once open one account", async () => {
  await using service = await start();
  const answers = await Promise.all([1, 2, 3, 4].map(() => service.chat({ max_tokens: 2 }, as("ada"))));
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200, 200, 200],
  );
  await Promise.all(answers.map((answer) => answer.text()));
  assert.equal((await service.store.listPeople({ limit: 10 })).length, 1);
  assert.equal((await service.store.accounts({ limit: 10 })).length, 2);
});

test("an opening that broke off is completed by the next request of the person", async () => {
  await using service = await start({ newAccountsPerDay: 1 });
  const { store } = service;
  const { linkPerson } = store;
  store.linkPerson = async () => {
    store.linkPerson = linkPerson;
    throw new Error("the service dies here");
  };
  assert.equal((await service.chat({}, as("ada"))).status, 500);
  assert.equal((await service.chat({}, as("ada"))).status, 200);
  assert.equal((await store.listPeople({ limit: 10 })).length, 1);
});

test("a new key of the same name meets the same people, and one of another name others", async () => {
  await using service = await start();
  await (await service.chat({}, as("ada"))).text();
  const second = await service.addKey({ actsFor });
  const other = await service.addKey({ actsFor: { ...actsFor, name: "course" } });
  for (const key of [second, other])
    await (await service.chat({}, { headers: { authorization: `Bearer ${key}`, [header]: "ada" } })).text();
  const receipts = await service.store.usage({ account: await accountOf(service, "ada"), limit: 10 });
  assert.deepEqual(receipts.map(({ key }) => key).toSorted(), ["key1", "key2"]);
  assert.notEqual(await accountOf(service, "ada", "course"), await accountOf(service, "ada"));
});

test("a cap of the key holds for all people together, exactly", async () => {
  await using service = await start(
    { newAccountsPerDay: 100 },
    { script: say("a ", "b ", "c ", "d "), engine: { parallel: 8, queue: 200 } },
  );
  const set = { caps: [{ amountMicro: credits(60), every: "P1D", byOperator: true }] };
  await service.ledger.apply({
    kind: "key",
    account: service.account,
    key: "key1",
    op: "b",
    set,
    by: "test",
  });
  const insist = async (person: string): Promise<string> => {
    for (;;) {
      const answer = await service.chat({ max_tokens: 8 }, as(person));
      const code = answer.ok ? "ok" : await codeOf(answer);
      if (answer.ok) await answer.text();
      if (code !== "credits_reserved") return code;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  const codes = await Promise.all(Array.from({ length: 40 }, (_, n) => insist(`person ${n % 20}`)));
  assert.deepEqual(new Set(codes), new Set(["ok", "cap_reached"]));
  const receipts = await service.store.usage({ key: "key1", limit: pageRowsMax });
  const charged = receipts.reduce((sum, { baseMicro }) => sum + baseMicro, 0);
  const row = await service.store.keyById("key1");
  assert.ok(charged <= credits(60) && charged > credits(60) - 4 * 1_000_000, `${charged}`);
  assert.deepEqual([row?.counters[0]?.spentMicro, row?.running, row?.holds], [charged, [], 0]);
});

test("the limits of the key count the requests of all people, and plans those of each", async () => {
  await using service = await start(
    {},
    { price: { prompt: 1, completion: 1 }, key: { concurrent: 2 }, script: babble("on ") },
  );
  const abort = new AbortController();
  const run = (person: string) => service.chat({ stream: true }, { ...as(person), signal: abort.signal });
  const [one, two] = [await run("ada"), await run("bob")];
  assert.deepEqual([one.status, two.status], [200, 200]);
  assert.equal(await codeOf(await run("carl")), "concurrency_limit_exceeded");
  abort.abort();
  await until("all requests have ended", async () => (await service.store.keyById("key1"))?.holds === 0);
});

test("a suspended person, account or front end is refused", async () => {
  await using service = await start();
  await (await service.chat({}, as("ada"))).text();
  const account = await accountOf(service, "ada");
  const to = (kind: "suspend" | "resume") => ({ kind });
  const state = { kind: "state", by: "test" } as const;
  await service.ledger.apply({ ...state, account, op: "1", to: to("suspend") });
  assert.equal(await codeOf(await service.chat({}, as("ada"))), "account_suspended");
  assert.equal((await service.chat({}, as("bob"))).status, 200);
  await service.ledger.apply({ ...state, account: service.account, op: "2", to: to("suspend") });
  assert.equal(await codeOf(await service.chat({}, as("bob"))), "account_suspended");
});

test("the ids of people are in no log line and reach no engine", async () => {
  await using service = await start();
  await (await service.chat({}, as("secret-person-id"))).text();
  await service.chat({}, as("secret-person-id".repeat(20)));
  assert.doesNotMatch(JSON.stringify(service.log), /secret-person-id/);
});

for (const [who, message, suspend] of [
  [
    "a person",
    /has suspended this person/,
    async ({ store }: TestService) => {
      const [person] = await store.listPeople({ limit: 1 });
      assert.ok(person !== undefined);
      const change = { id: "s", kind: "person", by: "test", subject: person.id, atMs: 1 } as const;
      const row = changeLogRow({ ...change, before: null, after: { suspended: true } });
      assert.ok(await store.setPersonSuspended(person.id, 1, row));
    },
  ],
  [
    "a front end",
    /The account of this front end is suspended/,
    async ({ ledger, account }: TestService) => {
      await ledger.apply({ kind: "state", account, op: "s", to: { kind: "suspend" }, by: "test" });
    },
  ],
] as const) {
  test(`${who} that is suspended before the body has come is refused`, async () => {
    await using service = await start();
    await (await service.chat({}, as("ada"))).text();
    const headers = { authorization: `Bearer ${service.key}`, [header]: "ada" };
    const body = { model: "small", messages: [{ role: "user", content: "Hi" }] };
    const request = { url: service.url, method: "POST", path: "/v1/chat/completions", headers, body };
    const held = await holdRequest(request, service.store, "findHolder");
    await suspend(service);
    const { status, received } = await held.send();
    assert.equal(status, 403, received);
    assert.match(received, message);
  });
}
