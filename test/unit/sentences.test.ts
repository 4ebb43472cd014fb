/** Changes in sentences: who changed what, and what many changes of one actor are together. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sendEvents } from "../../src/actions/events.ts";
import { changeGroups, sentenceOf, type ToldChange, textOf } from "../../src/actions/sentences.ts";
import { changeKinds } from "../../src/store/change-log.ts";
import { listedKinds } from "../../src/store/store.ts";

const ada = { by: "person:person_0123456789abcdef", by_name: "Ada" };
const byService = { by: "service", by_name: null };

function change(kind: string, values: Partial<ToldChange> = {}): ToldChange {
  const none = { subject: null, subject_name: null, bucket: null, amount_micro: null, before: null };
  return { kind, ...ada, account: "m.muller", ...none, after: null, outcome: null, ...values };
}

/** As journal and log have them, by the sentences that somebody expects who asks what happened. */
const scenarios: readonly (readonly [sentence: string, ToldChange])[] = [
  ["Ada opened account m.muller on plan student", change("open", { after: { plan: "student" } })],
  [
    "Base credits of m.muller were refilled to 1,000 credits by plan student",
    change("window", { ...byService, bucket: "base", amount_micro: 1e9, after: { plan: "student" } }),
  ],
  [
    "Ada changed the plan of m.muller: student → pro",
    change("plan", { before: { plan: "student", next_plan: null }, after: { at: "now", plan: "pro" } }),
  ],
  [
    "Ada changed the plan of m.muller at its next refresh: student → pro",
    change("plan", { before: { plan: "student", next_plan: null }, after: { at: "refresh", plan: "pro" } }),
  ],
  [
    "Ada cancelled the change of m.muller from student to pro",
    change("plan", {
      before: { plan: "student", next_plan: "pro" },
      after: { at: "refresh", plan: "student" },
    }),
  ],
  [
    "The plan of m.muller changed: student → pro",
    change("plan", { ...byService, before: { plan: "student", next_plan: "pro" }, after: { plan: "pro" } }),
  ],
  [
    "Overage credits of m.muller fell by 200 credits with the change of the plan",
    change("change", { bucket: "overage", amount_micro: -2e8 }),
  ],
  [
    "Ada added 500 credits to m.muller, paid for by inv-7",
    change("payment", { amount_micro: 5e8, subject: "inv-7" }),
  ],
  [
    "Ada gave m.muller 500 credits: a thank-you",
    change("promotion", { amount_micro: 5e8, after: { ends_at: null, reason: "a thank-you" } }),
  ],
  [
    "Ada gave m.muller 1 credit until 2027-01-31 23:00Z: a trial",
    change("promotion", {
      amount_micro: 1e6,
      after: { ends_at: "2027-01-31T23:00:00.000Z", reason: "a trial" },
    }),
  ],
  [
    "Ada gave m.muller 0.5 credits for request req-1: cut off",
    change("memo", { amount_micro: 5e5, subject: "req-1", after: { ends_at: null, reason: "cut off" } }),
  ],
  [
    "Ada took 200 promotional credits from m.muller: counted twice",
    change("adjust", { amount_micro: -2e8, after: { amount_micro: 2e8, reason: "counted twice" } }),
  ],
  [
    "Ada took back 250 credits of payment inv-7 from m.muller: half was not used",
    change("refund", {
      amount_micro: -2.5e8,
      subject: "inv-7",
      after: { amount_micro: 2.5e8, reason: "half was not used" },
    }),
  ],
  [
    "Ada took back 40 of 45 credits of payment inv-7 from m.muller",
    change("refund", { amount_micro: -4e7, subject: "inv-7", after: { amount_micro: 4.5e7 } }),
  ],
  ["Ada suspended account m.muller", change("suspend")],
  ["Ada resumed account m.muller", change("resume")],
  [
    "Ada changed the end of account m.muller: never → 2027-01-31 23:00Z",
    change("end", { before: { ends_at: null }, after: { ends_at: "2027-01-31T23:00:00.000Z" } }),
  ],
  ["The service closed account m.muller", change("close", { ...byService, after: { state: "closed" } })],
  [
    "Ada made key desk of m.muller",
    change("key", { subject: "key_1", subject_name: "desk", after: { models: ["*"], name: "desk" } }),
  ],
  [
    'Ada changed key desk of m.muller: caps: [] → [{"every":"P1D"}], expires_at: 2027-01-01 00:00Z → none',
    change("key", {
      subject: "key_1",
      subject_name: "desk",
      before: { caps: [], concurrent: 2, expires_at: "2027-01-01T00:00:00.000Z" },
      after: { caps: [{ every: "P1D" }], concurrent: 2, expires_at: null },
    }),
  ],
  [
    "Ada gave key key_1 of m.muller a new secret, and the old one has ended",
    change("key", { subject: "key_1", before: {}, after: { rotation: { overlap: null } } }),
  ],
  [
    "Ada gave key key_1 of m.muller a new secret, and the old one works until 2027-01-01 00:00Z",
    change("key", {
      subject: "key_1",
      before: {},
      after: { rotation: { overlap: "P1D" } },
      outcome: { old_until_at: "2027-01-01T00:00:00.000Z" },
    }),
  ],
  [
    "Ada revoked key desk of m.muller",
    change("key", {
      subject: "key_1",
      subject_name: "desk",
      before: { revoked_at: null },
      after: { revoked_at: "2027-01-01T00:00:00.000Z" },
    }),
  ],
  [
    "Request req-1 cost m.muller 0.021 credits",
    change("charge", { ...byService, subject: "req-1", amount_micro: -21_000 }),
  ],
  [
    "Request req-1 cost m.muller 0.021 credits until Ada stopped it",
    change("charge", { subject: "req-1", amount_micro: -21_000 }),
  ],
  [
    "Ada changed the contact of m.muller: owner: none → Max Müller, email: m@uni.example → none",
    change("contact", {
      before: { owner: null, email: "m@uni.example" },
      after: { owner: "Max Müller", email: null },
    }),
  ],
  ["Ada changed the contact of m.muller", change("contact")],
  [
    "Ada made operator key reports with the role viewer, until 2027-01-01 00:00Z",
    change("operator_key", {
      account: null,
      subject: "opkey_1",
      subject_name: "reports",
      after: { name: "reports", role: "viewer", expires_at: "2027-01-01T00:00:00.000Z" },
    }),
  ],
  [
    "Ada ended operator key reports",
    change("operator_key", { account: null, subject: "opkey_1", subject_name: "reports", before: {} }),
  ],
  [
    "The rules of sign-in changed Max: role: none → support",
    change("person", {
      by: "service:sign_in",
      by_name: null,
      account: null,
      subject: "person_1",
      subject_name: "Max",
      before: { role: null },
      after: { role: "support" },
    }),
  ],
  [
    "Ada linked Max to m.muller",
    change("person", {
      subject: "person_1",
      subject_name: "Max",
      before: { account: null },
      after: { account: "m.muller" },
    }),
  ],
  [
    "Ada suspended Max",
    change("person", { subject_name: "Max", subject: "person_1", before: {}, after: { suspended: true } }),
  ],
  [
    "Ada erased the data of person_1",
    change("person", { subject: "person_1", before: {}, after: { erased: true } }),
  ],
  // The values of a change are erased with the person, and the sentence names none of them.
  ["Ada changed person_1", change("person", { subject: "person_1" })],
  [
    "Ada invited the holder of m.muller to the portal, until 2027-01-01 00:00Z",
    change("invitation", { after: { expires_at: "2027-01-01T00:00:00.000Z" } }),
  ],
  [
    "Ada made link Class 1 with 40 seats on plan student",
    change("link", {
      account: null,
      subject: "link_1",
      subject_name: "Class 1",
      after: { name: "Class 1", seats: 40, plan: "student" },
    }),
  ],
  [
    "Ada changed link Class 1: seats: 40 → 50",
    change("link", {
      account: null,
      subject: "link_1",
      subject_name: "Class 1",
      before: { seats: 40, plan: "student" },
      after: { seats: 50, plan: "student" },
    }),
  ],
  ["Ada gave link link_1 a new address", change("link", { subject: "link_1", after: { rotated: true } })],
  ["Ada ended link link_1", change("link", { subject: "link_1", before: {}, after: { ended: true } })],
  [
    "Ada applied the plans: pro is retired, student version 2 → 3, team is offered",
    change("plans", {
      account: null,
      before: { plans: { pro: 1, student: 2, free: 1 } },
      after: { plans: { free: 1, student: 3, team: 1 } },
    }),
  ],
  [
    "Ada let the time of the ledger stand, 2027-01-03 00:00Z, with the clock at 2027-01-01 00:00Z",
    change("clock", {
      account: null,
      after: { ledger_at: "2027-01-03T00:00:00.000Z", clock_at: "2027-01-01T00:00:00.000Z" },
    }),
  ],
  [
    "Ada reloaded the configuration: models added: big; prices: small, tiny; after a restart: listen.port",
    change("reload", {
      account: null,
      after: {
        models: { added: ["big"], removed: [], changed: [] },
        prices: ["small", "tiny"],
        settings: [],
        needsRestart: ["listen.port"],
      },
    }),
  ],
  [
    "Ada reloaded the configuration: nothing has changed",
    change("reload", { account: null, after: { models: {}, prices: [] } }),
  ],
  [
    "Ada signed in to the console",
    change("sign_in", { account: null, after: { listener: "operator", credentials: "issuer" } }),
  ],
];

test("each change is a sentence that says who did what to whom, with the old and the new values", () => {
  for (const [sentence, told] of scenarios) assert.equal(textOf(sentenceOf(told)), sentence);
});

test("every kind of change has its sentence here", () => {
  const told = new Set(scenarios.map(([, { kind }]) => kind));
  assert.deepEqual(
    [...listedKinds, ...changeKinds].filter((kind) => !told.has(kind)),
    [],
  );
});

test("actors are called by their names, or by what they are", () => {
  const actors = {
    owner: "The owner",
    service: "The service",
    "service:sign_in": "The rules of sign-in",
    "service:new_link": "Somebody who asked for a new link",
    "command_line:root": "root (command line)",
    "operator_key:opkey_1": "opkey_1 (operator key)",
    "key:key_1": "The holder of key key_1",
    "link:link_1": "The link link_1",
    "person:person_1": "person_1",
    test: "test",
  };
  for (const [by, name] of Object.entries(actors)) {
    const sentence = textOf(sentenceOf(change("suspend", { by, by_name: null })));
    assert.equal(sentence, `${name} suspended account m.muller`);
  }
  const named = change("suspend", { by: "operator_key:opkey_1", by_name: "reports" });
  assert.equal(textOf(sentenceOf(named)), "reports (operator key) suspended account m.muller");
});

test("names in a sentence lead to what they name", () => {
  const revoked = { before: { revoked_at: null }, after: { revoked_at: "2027-01-01T00:00:00.000Z" } };
  const parts = sentenceOf(change("key", { subject: "key_1", subject_name: "desk", ...revoked }));
  assert.deepEqual(
    parts.filter((part) => typeof part !== "string"),
    [
      { of: "actor", id: "person:person_0123456789abcdef", text: "Ada" },
      { of: "key", id: "key_1", text: "desk" },
      { of: "account", id: "m.muller", text: "m.muller" },
    ],
  );
});

test("one import is one group, also if others change something meanwhile", () => {
  const at = (second: number) => new Date(Date.UTC(2027, 0, 1) - second * 1000).toISOString();
  const imported = (n: number) => ({ by: "command_line:root", by_name: null, account: `class-${n}` });
  const rows = Array.from({ length: 40 }, (_, n) => [
    { ...change("key", imported(n)), at: at(3 * n) },
    { ...change("promotion", { ...imported(n), amount_micro: 5e8 }), at: at(3 * n) },
    { ...change("open", imported(n)), at: at(3 * n + 1) },
    ...(n === 20 ? [{ ...change("suspend"), at: at(3 * n + 1) }] : []),
  ]).flat();
  const later = { ...change("resume"), at: at(3 * 40 + 60) };
  const groups = changeGroups([...rows, later]);
  const shown = groups.map(({ title, changes: [first, ...rest] }) =>
    title === null ? first?.kind : `${textOf(title)}; ${rest.length}`,
  );
  assert.deepEqual(shown, [
    "root (command line) made 120 changes: 40 keys made or changed, 40 promotions given (20,000 credits), 40 accounts opened; 119",
    "suspend",
    "resume",
  ]);
});

test("few changes, those of many kinds, and those with time between them, are told one by one", () => {
  const at = (second: number) => new Date(Date.UTC(2027, 0, 1) + second * 1000).toISOString();
  const rows = (count: number, every: number, kinds = ["suspend"]) =>
    Array.from({ length: count }, (_, n) => {
      const by = n % 2 === 0 ? "owner" : "command_line:root";
      return { ...change(kinds[Math.floor(n / 2) % kinds.length] ?? "", { by }), at: at(n * every) };
    });
  const countOf = (...given: Parameters<typeof rows>) => {
    const groups = changeGroups(rows(...given));
    if (groups.length > 2) {
      assert.deepEqual(
        groups.flatMap(({ changes }) => changes),
        rows(...given),
      );
    }
    return groups.length;
  };
  assert.equal(countOf(8, 1), 8);
  assert.equal(countOf(10, 5), 2);
  assert.equal(countOf(10, 6), 10);
  assert.equal(countOf(10, 1, ["suspend", "resume", "close"]), 10);
  assert.equal(countOf(12, 1, ["suspend", "resume", "close"]), 2);
});

test("one event is told as one", () => {
  assert.equal(sendEvents.done?.({ events: 1 }), "1 event is sent again.");
  assert.equal(sendEvents.done?.({ events: 2 }), "2 events are sent again.");
});
