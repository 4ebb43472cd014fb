/** Keys in the portal: who may do what with which key, and what an attacker tries. */
import assert from "node:assert/strict";
import { parseKey } from "../../src/accounts/keys.ts";
import { accountKeysMax } from "../../src/accounts/value-rules.ts";
import type { KeyRow } from "../../src/ledger/rows.ts";
import { timesAt } from "../../src/ledger/snapshot.ts";
import { addKey, keyOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { type Fields, listOf, type OperatorAnswer, refused, startOperator } from "../fixtures/operator.ts";
import { portalTests, type TestPortal } from "../fixtures/portal.ts";
import type { TestService } from "../fixtures/service.ts";

const portalTest = portalTests({ otherModels: ["large", "secret"] });

/** A person with a session of a key. */
class Person {
  readonly secret: string;
  readonly id: string;
  cookie: string;
  readonly #portal: TestPortal;

  constructor(portal: TestPortal, id: string, secret: string, cookie: string) {
    this.#portal = portal;
    this.id = id;
    this.secret = secret;
    this.cookie = cookie;
  }

  ask(method: string, path: string, body?: object): Promise<OperatorAnswer> {
    return this.#portal.as(this.cookie, method, path, body);
  }

  create(body: object = {}, operation_id = "new"): Promise<OperatorAnswer> {
    return this.ask("POST", "/api/keys", { operation_id, ...body });
  }

  change(key: string, body: object, operation_id = "change"): Promise<OperatorAnswer> {
    return this.ask("PATCH", `/api/keys/${key}`, { operation_id, ...body });
  }

  rotate(key: string, body: object = {}, operation_id = "rotate"): Promise<OperatorAnswer> {
    return this.ask("POST", `/api/keys/${key}/rotate`, { operation_id, ...body });
  }

  revoke(key: string): Promise<OperatorAnswer> {
    return this.ask("DELETE", `/api/keys/${key}`);
  }
}

let people = 0;

async function person(portal: TestPortal, service: TestService, change: Partial<KeyRow> = {}) {
  people += 1;
  const id = change.id ?? `person-${people}`;
  const secret = await service.addKey({ ...change, id });
  return new Person(portal, id, secret, await portal.signIn(secret));
}

const manager = (portal: TestPortal, service: TestService, change: Partial<KeyRow> = {}) =>
  person(portal, service, { portal: "account", ...change });

/** A key of another account. */
async function foreignKey(service: TestService): Promise<string> {
  await service.ledger.apply({ kind: "open", account: "other", plan: "test", by: "test" });
  await service.addKey({ id: "foreign", account: "other", portal: "account" });
  return "foreign";
}

function idsIn({ body }: OperatorAnswer): unknown[] {
  return listOf(body.data).map(({ id }) => id);
}

function paramOf({ body }: OperatorAnswer): unknown {
  const error: unknown = body.error;
  return typeof error === "object" && error !== null && "param" in error ? error.param : undefined;
}

/** Nothing about the keys of the service has changed. */
async function unchanged(service: TestService, run: () => Promise<void>): Promise<void> {
  const settled = async () =>
    (await service.store.keysAfter(null, 500)).map((key) => ({ ...key, lastUsedMs: null }));
  const before = await settled();
  await run();
  assert.deepEqual(await settled(), before);
}

async function works(service: TestService, secret: string): Promise<number> {
  const answer = await service.request("GET", "/v1/balance", {
    headers: { authorization: `Bearer ${secret}` },
  });
  await answer.text();
  return answer.status;
}

portalTest(
  "a key with the right `own` sees itself, and no other key of its account",
  async (portal, service) => {
    const own = await person(portal, service);
    assert.deepEqual(idsIn(await own.ask("GET", "/api/keys")), [own.id]);
    const foreign = await foreignKey(service);
    await unchanged(service, async () => {
      for (const id of ["key1", foreign, "no-such-key"]) {
        refused(await own.change(id, { name: "mine" }), 404, "key_not_found");
        refused(await own.rotate(id), 404, "key_not_found");
        refused(await own.revoke(id), 404, "key_not_found");
      }
      refused(await own.create(), 403, "not_permitted");
      refused(await own.change(own.id, { requests_per_minute: 5 }), 403, "not_permitted");
      refused(await own.change(own.id, { name: "mine" }), 403, "not_permitted");
      refused(await own.revoke(own.id), 403, "not_permitted");
    });
  },
);

portalTest(
  "a key with the right `account` sees all keys of its account, and of no other",
  async (portal, service) => {
    const boss = await manager(portal, service);
    const foreign = await foreignKey(service);
    assert.deepEqual(idsIn(await boss.ask("GET", "/api/keys")), ["key1", boss.id]);
    const first = await boss.ask("GET", "/api/keys?limit=1");
    assert.deepEqual(idsIn(await boss.ask("GET", `/api/keys?after=${String(first.body.next)}`)), [boss.id]);
    refused(await boss.ask("GET", `/api/keys?after=${foreign}`), 400, "invalid_value");
    await unchanged(service, async () => {
      const answers = await Promise.all(
        [foreign, "no-such-key"].map(async (id) => [
          await boss.change(id, { name: "mine" }, `c-${id}`),
          await boss.rotate(id, {}, `r-${id}`),
          await boss.revoke(id),
        ]),
      );
      for (const answer of answers.flat()) refused(answer, 404, "key_not_found");
      const [ofForeign, ofNothing] = answers.map((each) =>
        each.map(({ text }) => text.replaceAll(/foreign|no-such-key/g, "")),
      );
      assert.deepEqual(ofForeign, ofNothing, "a foreign key is refused as one that does not exist");
    });
  },
);

portalTest("a new key works, has the right `own`, and is shown once", async (portal, service) => {
  const boss = await manager(portal, service, { requestsPerMinute: 100, models: ["small", "large"] });
  const body = {
    name: "laptop",
    models: ["small"],
    requests_per_minute: 5,
    spending_caps: [{ credits: 7, every: "P1D" }],
  };
  const made = await boss.create(body);
  assert.equal(made.status, 201);
  const { key, id } = made.body;
  assert.equal(parseKey(String(key)), "ok");
  assert.equal(await works(service, String(key)), 200);
  const row = await service.store.keyById(String(id));
  assert.deepEqual(
    [row?.account, row?.portal, row?.models, row?.requestsPerMinute, row?.name],
    ["test", "own", ["small"], 5, "laptop"],
  );
  assert.partialDeepStrictEqual(row?.caps, [{ amountMicro: 7_000_000, every: "P1D", byOperator: false }]);
  const rights = { portal: "account" };
  refused(await boss.create({ ...body, ...rights }, "more"), 400, "unknown_parameter");
  refused(await boss.change(String(id), rights), 400, "unknown_parameter");
});

portalTest("lists of models have a length in all", async (portal, service) => {
  const boss = await manager(portal, service);
  const patterns = (count: number) => Array.from({ length: count }, (_, n) => `*${n}`.padEnd(100, "x"));
  const cap = { credits: 5, every: "P1D" };
  await unchanged(service, async () => {
    for (const [param, settings] of [
      ["models", { models: patterns(41) }],
      ["spending_caps[0].models", { spending_caps: [{ ...cap, models: patterns(11) }] }],
    ] as const) {
      const refusal = await boss.create(settings, param);
      refused(refusal, 400, "invalid_value");
      assert.equal(paramOf(refusal), param);
      assert.match(refusal.text, /must be a list of 1 to 100 model ids of [14],000 characters in all/);
    }
  });
  const most = await boss.create({ spending_caps: [{ ...cap, models: patterns(10) }] }, "most");
  assert.equal(most.status, 201);
});

portalTest("a new key has the limits of its creator unless it is given less", async (portal, service) => {
  const expiresMs = Date.now() + 3_600_000;
  const limits = { requestsPerMinute: 10, tokensPerMinute: 1000, concurrent: 2 };
  const boss = await manager(portal, service, { ...limits, expiresMs, models: ["small"] });
  const { body } = await boss.create();
  assert.deepEqual(body.limits, { requests_per_minute: 10, tokens_per_minute: 1000, concurrent: 2 });
  assert.deepEqual([body.models, body.expires_at], [["small"], new Date(expiresMs).toISOString()]);
  await unchanged(service, async () => {
    for (const [param, settings] of [
      ["requests_per_minute", { requests_per_minute: 11 }],
      ["tokens_per_minute", { tokens_per_minute: 1001 }],
      ["concurrent", { concurrent: 3 }],
      ["expires_at", { expires_at: new Date(expiresMs + 1000).toISOString() }],
      ["models[0]", { models: ["*"] }],
      ["models[0]", { models: ["large"] }],
    ] as const) {
      const refusal = await boss.create(settings, param);
      refused(refusal, 400, "invalid_value");
      assert.equal(paramOf(refusal), param);
    }
  });
  assert.equal((await boss.change(boss.id, { requests_per_minute: 9 }, "less")).status, 200);
  refused(await boss.change(boss.id, { requests_per_minute: 10 }, "back"), 400, "invalid_value");
});

portalTest(
  "a message about models names none that the key may not use",
  async (portal, service) => {
    const boss = await manager(portal, service, { models: ["small", "large"] });
    const named = await boss.create({ models: ["secret"] });
    refused(named, 400, "invalid_value");
    const all = await manager(portal, service);
    const unknown = await all.create({ models: ["nothing"] });
    refused(unknown, 400, "invalid_value");
    assert.doesNotMatch(unknown.text.replace("nothing", ""), /secret/);
    assert.match(unknown.text, /small, large/);
  },
  { plan: { models: ["small", "large"] } },
);

portalTest(
  "people see which caps of theirs an operator has set",
  async (portal, service) => {
    const holder = await person(portal, service, { id: "capped" });
    const caps = [
      { amountMicro: 5_000_000, every: "P1D", byOperator: true },
      { amountMicro: 9_000_000, every: "P1W", byOperator: false },
    ];
    const change = { kind: "key", account: "test", key: "capped", op: "caps", by: "test" } as const;
    await service.ledger.apply({ ...change, set: { caps } });
    const setters = (answer: Fields) =>
      listOf(answer.spending_caps).map((cap) => [cap.name, cap.by_operator]);
    const { body } = await holder.ask("GET", "/api/keys");
    assert.deepEqual(setters(listOf(body.data)[0] ?? {}), [
      ["P1D", true],
      ["P1W", false],
    ]);
    const account = await holder.ask("GET", "/api/account");
    assert.deepEqual(setters(account.body), [["PT5H", true]], "operators set plans");
  },
  { plan: { caps: [{ name: "PT5H", credits: 50, every: "PT5H", align: "opening", models: ["*"] }] } },
);

portalTest("a key with a cap manages names and revocations only", async (portal, service) => {
  const boss = await manager(portal, service, { id: "capped" });
  await service.ledger.apply({
    ...{ kind: "key", account: "test", key: boss.id, op: "cap", by: "test" },
    set: { caps: [{ amountMicro: 5_000_000, every: "P1D", byOperator: true }] },
  });
  const rights = (await boss.ask("GET", "/api/account")).body.rights;
  assert.partialDeepStrictEqual(rights, {
    ...{ keys: "account", can_create_keys: false },
    why_not: "This key has a spending cap. A new key could spend more than that.",
  });
  await unchanged(service, async () => {
    for (const [n, change] of [
      ...[[], [{ credits: 9_000, every: "P1D" }], [{ credits: 1, every: "P1D" }]].map((spending_caps) => ({
        spending_caps,
      })),
      ...[{ expires_at: "2100-01-01" }, { concurrent: 1 }],
    ].entries())
      refused(await boss.change(boss.id, change, `own-${n}`), 403, "not_permitted");
  });
  assert.equal((await boss.change("key1", { name: "laptop" })).body.name, "laptop");
  assert.notEqual((await boss.revoke("key1")).body.revoked_at, null);
  assert.equal((await boss.rotate(boss.id)).status, 200, "its own secret is not more");
});

portalTest(
  "rotating the own key gives a new session, and ends all others of the key",
  async (portal, service) => {
    const own = await person(portal, service, { requestsPerMinute: 7, models: ["small"] });
    const elsewhere = await portal.signIn(own.secret);
    const rotated = await own.rotate(own.id, { overlap: "PT1H" });
    assert.equal(rotated.status, 200);
    const secret = String(rotated.body.key);
    assert.deepEqual(
      [await works(service, secret), await works(service, own.secret)],
      [200, 200],
      "both secrets are valid during the overlap",
    );
    const { limits, models } = rotated.body;
    assert.deepEqual(
      [limits, models],
      [{ requests_per_minute: 7, tokens_per_minute: null, concurrent: null }, ["small"]],
    );
    for (const cookie of [own.cookie, elsewhere]) {
      refused(await portal.as(cookie, "GET", "/api/account"), 401, "invalid_session");
    }
    own.cookie = (rotated.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
    assert.equal((await own.ask("GET", "/api/account")).status, 200);
    // The same operation again changes nothing and shows no secret.
    const again = await own.rotate(own.id, { overlap: "PT1H" });
    assert.deepEqual([again.status, again.body.key], [200, null]);
    assert.equal(again.headers.get("set-cookie"), null);
    assert.equal(await works(service, secret), 200);
  },
);

portalTest(
  "the secret of a rotated key arrives even if no session can be started",
  async (portal, service) => {
    const own = await person(portal, service);
    const { addSession } = service.store;
    service.store.addSession = () => Promise.reject(new Error("the database is away"));
    const rotated = await own.rotate(own.id);
    service.store.addSession = addSession;
    assert.equal(rotated.status, 200);
    assert.equal(await works(service, String(rotated.body.key)), 200);
    assert.ok(service.log.some(({ msg }) => String(msg).includes("its session was not renewed")));
  },
);

portalTest("a key that revokes itself gets its answer, and its session is over", async (portal, service) => {
  const boss = await manager(portal, service);
  const revoked = await boss.revoke(boss.id);
  assert.equal(revoked.status, 200);
  assert.notEqual(revoked.body.revoked_at, null);
  refused(await boss.ask("GET", "/api/keys"), 401, "invalid_session");
  assert.equal(await works(service, boss.secret), 401);
});

portalTest("an old secret never outlives the expiry of its key", async (portal, service) => {
  const { times } = service.store;
  const nowMs = () => times().nowMs;
  const expiresMs = nowMs() + 60_000;
  const own = await person(portal, service, { expiresMs });
  const rotated = await own.rotate(own.id, { overlap: "P30D" });
  assert.equal(await works(service, own.secret), 200);
  service.store.times = () => timesAt(expiresMs);
  for (const secret of [own.secret, String(rotated.body.key)])
    assert.equal(await works(service, secret), 401);
  service.store.times = times;
});

portalTest(
  "operation ids of the portal are apart from those of operators and of other keys",
  async (portal, service) => {
    await using operator = await startOperator(service);
    const made = await operator.post("/admin/accounts/test/keys", { operation_id: "same" });
    assert.equal(made.status, 201);
    const [one, two] = [await manager(portal, service), await manager(portal, service)];
    const created = [await one.create({}, "same"), await two.create({}, "same")];
    assert.deepEqual(
      created.map(({ status }) => status),
      [201, 201],
    );
    assert.equal(new Set([made, ...created].map(({ body }) => body.id)).size, 3);
    const change = { operation_id: "rename", name: "by the operator" };
    assert.equal((await operator.patch("/admin/keys/key1", change)).status, 200);
    assert.equal((await one.change("key1", { name: "one" }, "rename")).body.name, "one");
    assert.equal((await two.change("key1", { name: "two" }, "rename")).body.name, "two");
    assert.equal((await one.change("key1", { name: "one" }, "rename")).body.name, "two", "once only");
    const differs = await one.change("key1", { name: "three" }, "rename");
    refused(differs, 409, "operation_differs");
    assert.doesNotMatch(differs.text, /portal person|two/, "no message shows another change");
  },
);

portalTest(
  "a key that was revoked a moment ago creates nothing and gets no secret",
  async (portal, service) => {
    // It would end the answers of a slow machine.
    await portal.stopJobs();
    await service.addKey({ id: "target" });
    for (const act of [
      (boss: Person) => boss.create(),
      (boss: Person) => boss.rotate("target", {}, boss.id),
    ]) {
      const boss = await manager(portal, service);
      const keysBefore = idsIn(await boss.ask("GET", "/api/keys"));
      const { store } = service;
      const commit = store.commit.bind(store);
      // The operator revokes the key after it was checked, and before the change.
      store.commit = async (operations) => {
        store.commit = commit;
        await revokeKey(store, boss.id);
        return await commit(operations);
      };
      const answer = await act(boss);
      assert.ok([401, 409].includes(answer.status), answer.text);
      assert.doesNotMatch(answer.text, /ink_/);
      assert.deepEqual(
        (await store.keys("test")).map(({ id }) => id),
        keysBefore,
      );
    }
  },
);

portalTest(
  "a key that is revoked while its new key is stored: that key is revoked too",
  async (portal, service) => {
    await portal.stopJobs();
    const boss = await manager(portal, service);
    const { store } = service;
    const commit = store.commit.bind(store);
    store.commit = async (operations) => {
      store.commit = commit;
      const outcomes = await commit(operations);
      await revokeKey(store, boss.id);
      return outcomes;
    };
    const answer = await boss.create();
    refused(answer, 401, "invalid_session");
    const made = (await store.keys("test")).at(-1);
    assert.ok(made !== undefined && made.id !== boss.id && made.revokedMs !== null);
  },
);

portalTest(
  "an operator who lowers a limit is not overtaken by a change in the portal",
  async (portal, service) => {
    const boss = await manager(portal, service, { requestsPerMinute: 100 });
    const { store, ledger } = service;
    const keyById = store.keyById.bind(store);
    store.keyById = async (id) => {
      const row = await keyById(id);
      store.keyById = keyById;
      const set = { requestsPerMinute: 10 };
      await ledger.apply({ kind: "key", account: "test", key: boss.id, op: "lower", set, by: "test" });
      return row;
    };
    refused(await boss.change(boss.id, { requests_per_minute: 50 }), 409, "key_changed");
    assert.equal((await keyById(boss.id))?.requestsPerMinute, 10);
  },
);

portalTest(
  "an account has a most of keys that the portal creates, ended keys included",
  async (portal, service) => {
    const boss = await manager(portal, service);
    for (let n = (await service.store.keys("test")).length; n < accountKeysMax - 1; n += 1) {
      const row = keyOf(`filled-${n}`, "test", { hash: String(n).padStart(64, "f"), revokedMs: 1 });
      assert.equal((await addKey(service.store, row)).kind, "issued");
    }
    assert.equal((await boss.create({}, "last")).status, 201);
    refused(await boss.create({}, "one more"), 409, "too_many_keys");
    assert.equal((await boss.create({}, "last")).status, 200, "a repetition is no new key");
  },
);

portalTest("the changes of an account are limited", async (portal, service) => {
  const boss = await manager(portal, service);
  const statuses: number[] = [];
  while (!statuses.includes(429)) {
    statuses.push(
      (await boss.change("key1", { name: `n${statuses.length}` }, `op${statuses.length}`)).status,
    );
    assert.ok(statuses.length < 200);
  }
  assert.ok(statuses.length > 60);
  refused(await boss.create(), 429, "too_many_changes");
  refused(await boss.create({ models: ["none"] }), 429, "too_many_changes");
  refused(await boss.change("key1", { models: ["none"] }, "none"), 429, "too_many_changes");
  assert.equal((await boss.revoke("key1")).status, 200, "revocations are counted apart");
  assert.equal((await boss.ask("GET", "/api/keys")).status, 200);
});

portalTest("no answer about keys has a hash, an owner or a note", async (portal, service) => {
  await using operator = await startOperator(service);
  const contact = {
    owner: "Ada Lovelace",
    email: "ada@maths.example",
    note: "pays late",
    external_id: "crm-1",
  };
  assert.equal((await operator.patch("/admin/accounts/test/contact", contact)).status, 200);
  const boss = await manager(portal, service);
  const made = await boss.create();
  const rotated = await boss.rotate(String(made.body.id));
  const row = await service.store.keyById(String(made.body.id));
  const answers = [
    made,
    rotated,
    await boss.ask("GET", "/api/keys"),
    await boss.ask("GET", "/api/account"),
    await boss.ask("GET", "/api/requests"),
    await boss.ask("GET", "/api/usage"),
    await boss.ask("GET", "/api/models"),
    await boss.change("key1", { name: "x" }),
  ];
  const hidden: Fields = { ...contact, hash: row?.hash, old: row?.oldHash };
  for (const { text, status } of answers) {
    assert.ok(status < 300, text);
    for (const value of Object.values(hidden)) assert.ok(!text.includes(String(value)), text);
  }
});
