/**
 * Every route of the portal, asked for what its session may not see: nothing of another account,
 * or of another key of its own account, is in any answer, and nothing of them changes.
 *
 * A route of the portal's document without a row in `attacks` fails the test.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { limits } from "../../src/limits/limits.ts";
import { TokenBucket } from "../../src/limits/token-bucket.ts";
import { auditFile } from "../../src/store/sqlite/audit.ts";
import { type Fields, fieldsOf, listOf, startOperator, type TestOperator } from "../fixtures/operator.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { startPortal, type TestPortal } from "../fixtures/portal.ts";
import { babble, hello, startService, type TestService } from "../fixtures/service.ts";
import { some } from "../fixtures/thorough.ts";
import { until } from "../fixtures/until.ts";

/** Names in an attack: those of the victim, or made-up ones. Both must get the same answer. */
interface Names {
  account: string;
  key: string;
  request: string;
  model: string;
  /** `next` of the first page of a list, by its path. */
  cursors: Readonly<Record<string, string>>;
}

interface Attack {
  path?: string;
  body?: object;
  /** Reads a stream without an end until it has these texts. */
  until?: RegExp[];
  /** The session takes part in a change of its own: asked once, with the victim's names only. */
  once?: boolean;
}

const none: Names = {
  account: "nobody",
  key: "key_0000000000000000",
  model: "nothing",
  cursors: {},
  request: "01a2053a-0000-7000-8000-000000000000",
};

/** Filters with which a list is asked for another key, account, time or page. */
function filters(
  path: string,
  { account, key, request, model, cursors }: Names,
  more: string[] = [],
): Attack[] {
  const queries = [
    "",
    `key=${key}`,
    `model=${model}`,
    `account=${account}`,
    `request_id=${request}`,
    `owner=${account}`,
    `key=${key}&account=${account}`,
    `key=${key}&key=${key}`,
    `after=${key}`,
    `after=${request}`,
    ...more,
  ];
  const cursor = cursors[path];
  return [
    ...queries.map((query) => ({ path: query === "" ? path : `${path}?${query}` })),
    // A page after one of the victim's has rows of the session alone.
    ...(cursor === undefined
      ? []
      : [{ once: true, path: `${path}?limit=1&after=${encodeURIComponent(cursor)}` }]),
  ];
}

function sums(path: string, names: Names): Attack[] {
  const groups = ["day", "model", "key", "account"].flatMap((by) => [
    `by=${by}`,
    `by=${by}&key=${names.key}`,
    `by=${by}&account=${names.account}`,
    `by=${by}&from=2020-01-01&to=2099-01-01&model=${names.model}`,
    `by=${by}&format=csv`,
    `by=${by}&format=csv&key=${names.key}`,
  ]);
  return filters(path, names, groups);
}

/** Settings that a session must not give to a key, or to a key of somebody else. */
function settings({ account, key }: Names): Fields[] {
  return [
    { name: "taken" },
    { portal: "account" },
    { account },
    { key },
    { models: ["*"], expires_at: null },
    { spending_caps: [] },
    { requests_per_minute: null },
  ];
}

let operationCount = 0;
/** A new operation id for each attack, the same for the victim's names and for nobody's. */
function operationId(names: Names): string {
  if (names !== none) operationCount += 1;
  return `attack-${operationCount}`;
}

const message = { model: "small", messages: hello, stream: true, max_tokens: 2 };

const attacks: Readonly<Record<string, (names: Names) => Attack[]>> = {
  "POST /api/session": ({ account, key }) => [
    { body: { key } },
    { body: { key: account } },
    { body: { key: "ink_0", account } },
  ],
  "GET /api/sign-in": () => [{}],
  "POST /api/sign-in": ({ account }) => [{ body: { account } }],
  "POST /api/sign-in/joins": ({ account }) => [
    { body: { code: "x", name: account, email: `${account}@x.example` } },
  ],
  "POST /api/sign-in/links": ({ account }) => [{ body: { email: `${account}@x.example` } }],
  "POST /api/requests/{request}/stop": ({ account, key }) => [
    { path: `/api/requests/${account}/stop` },
    { path: `/api/requests/${key}/stop` },
  ],
  "GET /api/session": () => [{}],
  "DELETE /api/session": () => [{ once: true }],
  "GET /api/sessions": ({ account, key }) => [
    {},
    { path: `/api/sessions?account=${account}` },
    { path: `/api/sessions?key=${key}` },
  ],
  "DELETE /api/sessions": () => [{ once: true }],
  "GET /api/account": ({ account, key }) => [
    {},
    { path: `/api/account?account=${account}` },
    { path: `/api/account?key=${key}` },
    { path: `/api/account/${account}` },
  ],
  "PATCH /api/account/mail": ({ account }) => [
    { once: true, body: { balance_low_mail: "off" } },
    { body: { account, balance_low_mail: "off" } },
    { path: `/api/account/${account}/mail`, body: { balance_low_mail: "off" } },
  ],
  "POST /api/chat": ({ account, key, model }) => [
    { once: true, body: { ...message, user: account, metadata: { account, key } } },
    // That a model exists is no secret: the public API shows it too.
    { once: true, body: { ...message, model } },
  ],
  "GET /api/requests": (names) => filters("/api/requests", names),
  "GET /api/refusals": (names) => filters("/api/refusals", names),
  "GET /api/usage": (names) => sums("/api/usage", names),
  "GET /api/usage/hours": (names) => sums("/api/usage/hours", names),
  "GET /api/models": (names) => filters("/api/models", names),
  "GET /api/keys": (names) => filters("/api/keys", names),
  "POST /api/keys": (names) => [
    ...[{ account: names.account }, { id: names.key }, { key: names.key }].map((change) => ({
      body: { operation_id: operationId(names), name: "new", ...change },
    })),
    // The operation id of the victim's own key makes no repetition of it.
    { once: true, body: { operation_id: "op-victim-worker", name: "victim-worker" } },
  ],
  "PATCH /api/keys/{key}": (names) =>
    settings(names).map((change) => ({
      path: `/api/keys/${names.key}`,
      body: { operation_id: operationId(names), ...change },
    })),
  "POST /api/keys/{key}/rotate": (names) => [
    { path: `/api/keys/${names.key}/rotate`, body: { operation_id: operationId(names), overlap: "none" } },
    { path: `/api/keys/${names.key}/rotate`, body: { operation_id: operationId(names) } },
  ],
  "DELETE /api/keys/{key}": ({ key }) => [{ path: `/api/keys/${key}` }],
  "GET /api/live": ({ account, key }) => [
    { until: [/event: balance/, /event: requests/] },
    { path: `/api/live?account=${account}` },
    { path: `/api/live?key=${key}` },
  ],
};

interface Party {
  /** The account, its keys and requests, with everything that only it may see. */
  names: Names;
  secrets: string[];
  /** Everything that the operator sees of it. */
  snapshot(): Promise<unknown>;
}

interface Scene extends AsyncDisposable {
  service: TestService;
  portal: TestPortal;
  /** Sessions, by what they are, each with the party that it may not see. */
  attackers: { name: string; secret: string; victim: Party }[];
}

/** Two accounts with keys of both rights, payments, caps, receipts and a running request. */
async function startScene(): Promise<Scene> {
  await using opened = new AsyncDisposableStack();
  const service = opened.use(await startService({ script: babble("word"), otherModels: ["secret-model"] }));
  const operator = opened.use(await startOperator(service));
  let attempts = 0;
  const portal = opened.use(
    // The limit of attempts is another test's.
    await startPortal(service, {
      attempts: new TokenBucket(limits.signIns, { nowMs: () => (attempts += 61_000) }),
    }),
  );
  const boss = await openKey(operator, "victim", { name: "victim-boss", portal: "account" });
  const worker = await openKey(operator, "victim", {
    name: "victim-worker",
    spending_caps: [{ credits: 654, every: "P1D" }],
  });
  const peer = await openKey(operator, "victim", { name: "peer", models: ["small"] });
  const strangers = [
    await openKey(operator, "stranger", { name: "stranger-boss", portal: "account", models: ["small"] }),
    await openKey(operator, "stranger", { name: "stranger-own", models: ["small"] }),
  ];
  const contact = {
    owner: "Victoria Victim",
    email: "v@victim.example",
    note: "vip note",
    external_id: "crm-777",
  };
  await operator.patch("/admin/accounts/victim/contact", contact);
  await operator.post("/admin/accounts/victim/topups", { payment_id: "invoice-victim", credits: 7_654_321 });
  const requests = await Promise.all([boss, worker].map((key, n) => askOnce(service, key.key, 17 + 4 * n)));
  const headers = { authorization: `Bearer ${worker.key}` };
  const ofRefused = (await service.chat({ model: "none" }, { headers })).headers.get("x-request-id") ?? "";
  const ofRunning = await startWaiting(service, worker.key, opened);
  const ofKeys = [boss, worker].flatMap(({ id, key, name }) => [id, key, key.slice(-8), name]);
  const amounts = ["7654321", "654000000", ...(await costsOf(operator, requests))];
  const cookie = await portal.signIn(boss.key);
  const cursorOf = async (path: string) => {
    const { status, body, text } = await portal.as(cookie, "GET", `${path}?limit=1`);
    assert.equal(status, 200, text);
    assert.ok(typeof body.next === "string", `${path} has a second page: ${text}`);
    return body.next;
  };
  const names: Names = {
    account: "victim",
    key: worker.id,
    request: requests[1] ?? "",
    model: "secret-model",
    cursors: {
      "/api/requests": await cursorOf("/api/requests"),
      "/api/keys": await cursorOf("/api/keys"),
    },
  };
  const account: Party = {
    names,
    secrets: [
      "victim",
      "Victoria",
      "vip note",
      "crm-777",
      "invoice-victim",
      peer.id,
      ...ofKeys,
      ...requests,
      ofRunning,
      ofRefused,
      ...amounts,
    ],
    snapshot: () => snapshotOf(operator, "victim", [boss.id, worker.id, peer.id]),
  };
  // A key that sees only itself shares the balance with the other keys, and nothing else.
  const otherKeys: Party = {
    names,
    secrets: [
      ...ofKeys,
      ...requests,
      ofRunning,
      ofRefused,
      "654000000",
      "Victoria",
      "vip note",
      "crm-777",
      "invoice-victim",
    ],
    snapshot: () => snapshotOfKeys(operator, [boss.id, worker.id]),
  };
  const kept = opened.move();
  return {
    service,
    portal,
    attackers: [
      {
        name: "a key of another account that manages its keys",
        secret: strangers[0]?.key ?? "",
        victim: account,
      },
      { name: "a key of another account", secret: strangers[1]?.key ?? "", victim: account },
      { name: "another key of the account", secret: peer.key, victim: otherKeys },
    ],
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

/** Starts a request that waits after its first token until the scene ends. Returns its id. */
async function startWaiting(
  service: TestService,
  key: string,
  opened: AsyncDisposableStack,
): Promise<string> {
  const { promise: mayGoOn, resolve: goOn } = Promise.withResolvers<void>();
  async function* tokens() {
    yield "word";
    await mayGoOn;
  }
  const { engine, store } = service;
  const { script } = engine;
  engine.script = () => ({ tokens: tokens() });
  const response = await service.chat({ stream: true }, { headers: { authorization: `Bearer ${key}` } });
  await response.body?.getReader().read();
  engine.script = script;
  const holds = async () => (await store.accountSnapshot("victim"))?.account.holds;
  assert.equal(await holds(), 1);
  opened.defer(async () => {
    goOn();
    await until("the request has ended", async () => (await holds()) === 0);
    const file = { path: service.databaseFile, busyMs: 5000 };
    assert.deepEqual(auditFile({ file, nowMs: Date.now() }).broken, [], "the audit after all attacks");
  });
  return response.headers.get("x-request-id") ?? "";
}

async function openKey(
  operator: TestOperator,
  account: string,
  settings: Fields,
): Promise<{ id: string; key: string; name: string }> {
  await operator.post("/admin/accounts", { id: account, plan: "test" });
  const body = { operation_id: `op-${settings.name}`, ...settings };
  const { status, body: made, text } = await operator.post(`/admin/accounts/${account}/keys`, body);
  assert.equal(status, 201, text);
  return { id: String(made.id), key: String(made.key), name: String(settings.name) };
}

/** A request of so many tokens. Returns its id. */
async function askOnce(service: TestService, key: string, tokens: number): Promise<string> {
  const response = await service.chat(
    { max_tokens: tokens },
    { headers: { authorization: `Bearer ${key}` } },
  );
  assert.equal(response.status, 200, await response.text());
  return response.headers.get("x-request-id") ?? "";
}

async function costsOf(operator: TestOperator, requests: string[]): Promise<string[]> {
  const receipts = await Promise.all(
    requests.map(async (id) => listOf((await operator.get(`/admin/usage?request_id=${id}`)).body.data)[0]),
  );
  return receipts.map((receipt) => `"cost_micro":${receipt?.cost_micro},`);
}

async function snapshotOf(operator: TestOperator, account: string, keys: string[]): Promise<unknown> {
  const paths = ["", "/balance", "/keys", "/journal?limit=500"].map(
    (path) => `/admin/accounts/${account}${path}`,
  );
  const bodies = await Promise.all(paths.map(async (path) => (await operator.get(path)).body));
  return [bodies, await snapshotOfKeys(operator, keys)];
}

async function snapshotOfKeys(operator: TestOperator, keys: string[]): Promise<unknown> {
  return await Promise.all(
    keys
      .flatMap((key) => [`/admin/keys/${key}`, `/admin/usage?key=${key}`])
      .map(async (path) => (await operator.get(path)).body),
  );
}

/** Asks once. Returns all that the answer has, as one text. */
async function answerTo(
  portal: TestPortal,
  cookie: string,
  operation: string,
  { path, body, until: texts }: Attack,
): Promise<{ status: number; text: string; headers: string }> {
  const [method = "", route = ""] = operation.split(" ");
  if (texts === undefined) {
    const answer = await portal.as(cookie, method, path ?? route, body);
    return { status: answer.status, text: answer.text, headers: JSON.stringify([...answer.headers]) };
  }
  const stop = new AbortController();
  const response = await fetch(portal.url + route, {
    headers: { cookie, ...pageHeader },
    signal: stop.signal,
  });
  assert.equal(response.status, 200);
  let text = "";
  const decoder = new TextDecoder();
  for await (const bytes of response.body ?? []) {
    text += decoder.decode(bytes, { stream: true });
    if (texts.every((pattern) => pattern.test(text))) break;
  }
  stop.abort();
  return { status: response.status, text, headers: JSON.stringify([...response.headers]) };
}

test("no session sees or changes anything that is not its own, on any route", async (t) => {
  await using scene = await startScene();
  const { portal, attackers } = scene;
  const operations = Object.entries(fieldsOf(portal.document.paths)).flatMap(([path, methods]) =>
    Object.keys(fieldsOf(methods)).map((method) => `${method.toUpperCase()} ${path}`),
  );
  assert.deepEqual(operations.sort(), Object.keys(attacks).sort(), "each route has a row in this test");
  for (const { name, secret, victim } of some(attackers, 2)) {
    await t.test(name, async () => {
      const before = await victim.snapshot();
      for (const operation of operations) {
        const calls = attacks[operation]?.(victim.names) ?? [];
        const likeIt = attacks[operation]?.(none) ?? [];
        const cookie = await portal.signIn(secret);
        for (const [n, call] of calls.entries()) {
          const what = `${name}: ${operation} ${JSON.stringify(call)}`;
          const answer = await answerTo(portal, cookie, operation, call);
          const asked = JSON.stringify(call);
          for (const each of victim.secrets.filter((each) => !asked.includes(each))) {
            assert.ok(!answer.text.includes(each), `${what} shows ${each}: ${answer.text}`);
            assert.ok(!answer.headers.includes(each), `${what} shows ${each} in its headers`);
          }
          const { path, body } = likeIt[n] ?? {};
          const isNamed = asked !== JSON.stringify(likeIt[n]);
          if (!isNamed || call.once === true || call.until !== undefined) continue;
          // Somebody else's is answered as what does not exist.
          const other = await answerTo(portal, cookie, operation, {
            ...(path ? { path } : {}),
            ...(body ? { body } : {}),
          });
          assert.deepEqual(
            { status: answer.status, text: unnamed(answer.text, victim.names) },
            { status: other.status, text: unnamed(other.text, none) },
            what,
          );
        }
      }
      assert.deepEqual(await victim.snapshot(), before, "nothing of the victim has changed");
    });
  }
});

/** A text without the names that the caller sent, and without the time. */
function unnamed(text: string, names: Names): string {
  const found = [names.account, names.key, names.request, names.model];
  return found
    .reduce((rest, name) => rest.replaceAll(name, "NAME"), text)
    .replaceAll(/"\d{4}-\d\d-\d\dT[^"]*"/g, "TIME");
}
