/**
 * The keys that a session leaves behind: every setting that limits a key, with a target below, at
 * and above the session's key, against every action. After each action, the target either is
 * within the session's key, or has nothing more than it had before.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { KeyCap } from "../../src/ledger/cap-rows.ts";
import type { KeyRow } from "../../src/ledger/rows.ts";
import { type Fields, fieldsOf, type OperatorAnswer } from "../fixtures/operator.ts";
import { startPortal, type TestPortal } from "../fixtures/portal.ts";
import { startService, type TestService } from "../fixtures/service.ts";
import { some } from "../fixtures/thorough.ts";

const hourMs = 3_600_000;
const now = Date.now();
const inAnHour = now + hourMs;
const inADay = now + 24 * hourMs;

/**
 * The values of a setting, in the order of what they allow: below, of the session's key, above.
 */
const settings = {
  models: [["small"], ["small", "large"], ["*"]],
  expiresMs: [inAnHour, inADay, null],
  requestsPerMinute: [5, 10, null],
  tokensPerMinute: [500, 1000, 1001],
  concurrent: [1, 2, null],
} as const;
type Setting = keyof typeof settings;
const settingNames = ["models", "expiresMs", "requestsPerMinute", "tokensPerMinute", "concurrent"] as const;

const places = ["below", "at", "above"] as const;
type Place = (typeof places)[number];

function rowWith(setting: Setting, place: Place): Partial<KeyRow> {
  return { [setting]: settings[setting][places.indexOf(place)] };
}

/** A setting as the API takes it. */
function bodyWith(setting: Setting, place: Place): Fields {
  const value = settings[setting][places.indexOf(place)];
  switch (setting) {
    case "models":
    case "concurrent":
      return { [setting]: value };
    case "expiresMs":
      return { expires_at: typeof value === "number" ? new Date(value).toISOString() : null };
    case "requestsPerMinute":
      return { requests_per_minute: value };
    case "tokensPerMinute":
      return { tokens_per_minute: value };
  }
}

function capped(amount: number, change: Partial<KeyCap> = {}): Partial<KeyRow> {
  const rule = { name: "P1D", every: "P1D", align: "opening", timezone: "UTC" } as const;
  const cap = { ...rule, amountMicro: amount * 1_000_000, models: ["*"], sinceMs: 0, byOperator: false };
  return { caps: [{ ...cap, ...change }] };
}
const paused = capped(0);
const withCap = capped(5);

/** The list of caps as the API takes it. */
function caps(...list: { credits: number; [part: string]: unknown }[]): Fields {
  return { spending_caps: list.map((cap) => ({ every: "P1D", ...cap })) };
}

/** An action of a session on a target. `widens`: the target has more afterwards. */
interface Action {
  name: string;
  /** Properties of the target beside the setting of the row. */
  target?: Partial<KeyRow>;
  method?: "POST" | "DELETE";
  path?: string;
  body?: Fields;
  widens?: boolean;
}

/** Actions that do not touch the setting of the row. */
const others: Action[] = [
  { name: "renames it", body: { name: "laptop" } },
  { name: "revokes it", method: "DELETE" },
  { name: "rotates it", method: "POST", path: "/rotate", widens: true },
  { name: "gives it a cap", body: caps({ credits: 9_000_000 }) },
  { name: "lowers its cap", target: withCap, body: caps({ credits: 4 }) },
  { name: "adds a cap", target: withCap, body: caps({ credits: 5 }, { credits: 2, every: "PT5H" }) },
  { name: "raises its cap", target: withCap, body: caps({ credits: 6 }), widens: true },
  {
    ...{ name: "lengthens its cap's period", target: withCap },
    ...{ body: caps({ credits: 5, every: "P1W" }), widens: true },
  },
  {
    ...{ name: "shortens its cap's period", target: withCap },
    ...{ body: caps({ credits: 5, every: "PT1H" }), widens: true },
  },
  {
    ...{ name: "lets its cap hold for fewer models", target: withCap },
    ...{ body: caps({ credits: 5, models: ["small"] }), widens: true },
  },
  { name: "names its cap anew", target: withCap, body: caps({ credits: 5, name: "other" }), widens: true },
  { name: "removes its cap of 0", target: paused, body: caps(), widens: true },
  { name: "raises its cap of 0", target: paused, body: caps({ credits: 1 }), widens: true },
];

/** The same for settings: those of a row are changed by actions of their own. */
function othersFor(setting: Setting): Action[] {
  const more = settingNames
    .filter((other) => other !== setting)
    .flatMap((other): Action[] => [
      { name: `narrows its ${other}`, body: bodyWith(other, "below") },
      {
        name: `widens its ${other}`,
        target: rowWith(other, "below"),
        body: bodyWith(other, "at"),
        widens: true,
      },
    ]);
  const revived: Action = {
    name: "revives it, expired",
    target: { expiresMs: now - hourMs },
    body: bodyWith("expiresMs", "at"),
    widens: true,
  };
  return [...others, ...more, ...(setting === "expiresMs" ? [] : [revived])];
}

interface Party {
  portal: TestPortal;
  service: TestService;
  account: string;
  own: KeyRow;
  ask(method: string, path: string, body?: Fields): Promise<OperatorAnswer>;
}

let count = 0;

/** An account with a session of a key. */
async function party(portal: TestPortal, service: TestService, change: Partial<KeyRow>): Promise<Party> {
  count += 1;
  const [account, id] = [`account-${count}`, `session-${count}`];
  await service.ledger.apply({ kind: "open", account, plan: "test", by: "test" });
  const secret = await service.addKey({ portal: "account", ...change, account, id });
  const cookie = await portal.signIn(secret);
  const own = await service.store.keyById(id);
  assert.ok(own !== null);
  return { portal, service, account, own, ask: (...call) => portal.as(cookie, ...call) };
}

async function newTarget({ service, account }: Party, change: Partial<KeyRow>): Promise<KeyRow> {
  count += 1;
  const id = `target-${count}`;
  await service.addKey({ ...change, account, id });
  return await rowOf(service, id);
}

async function rowOf({ store }: TestService, id: string): Promise<KeyRow> {
  const row = await store.keyById(id);
  assert.ok(row !== null);
  return row;
}

function act({ ask }: Party, id: string, { method, path = "", body }: Action): Promise<OperatorAnswer> {
  count += 1;
  const operation = { operation_id: `operation-${count}`, ...body };
  return ask(method ?? "PATCH", `/api/keys/${id}${path}`, method === "DELETE" ? undefined : operation);
}

/** Whether a key may do nothing that the other may not do. Written from the portal's rules. */
function isWithin(key: KeyRow, other: KeyRow): boolean {
  if (key.revokedMs !== null) return true;
  const limits = ["expiresMs", "requestsPerMinute", "tokensPerMinute", "concurrent"] as const;
  const isNoMore = limits.every((field) => (key[field] ?? Infinity) <= (other[field] ?? Infinity));
  const hasModels = other.models.includes("*") || key.models.every((id) => other.models.includes(id));
  const isCapped = other.caps.every((cap) =>
    key.caps.some(
      ({ name, every, amountMicro, models }) =>
        name === cap.name &&
        every === cap.every &&
        amountMicro <= cap.amountMicro &&
        `${models}` === `${cap.models}`,
    ),
  );
  const isOwn = key.portal === "own" || other.portal === "account";
  return isNoMore && hasModels && isCapped && isOwn;
}

/** Holds an answer and what it left behind against the rules. Returns the row. */
async function check(
  { service, own }: Party,
  before: KeyRow,
  answer: OperatorAnswer,
  expected: 200 | 400 | 403,
  what: string,
): Promise<KeyRow> {
  assert.equal(answer.status, expected, `${what}: ${answer.text}`);
  const code = { 200: undefined, 400: "invalid_value", 403: "not_permitted" }[expected];
  if (code !== undefined) assert.equal(fieldsOf(answer.body.error).code, code, what);
  const after = await rowOf(service, before.id);
  if (expected !== 200) assert.deepEqual(after, before, `${what}: nothing has changed`);
  assert.ok(isWithin(after, own) || isWithin(after, before), `${what}: the key that is left`);
  return after;
}

async function scene(run: (portal: TestPortal, service: TestService) => Promise<void>): Promise<void> {
  await using service = await startService({ otherModels: ["large"] });
  await using portal = await startPortal(service);
  await run(portal, service);
}

for (const setting of some(settingNames, 4)) {
  for (const place of places) {
    test(`a session and a key ${place} its own ${setting}`, () =>
      scene(async (portal, service) => {
        const someone = await party(portal, service, rowWith(setting, "at"));
        for (const action of othersFor(setting)) {
          const before = await newTarget(someone, { ...rowWith(setting, place), ...action.target });
          const answer = await act(someone, before.id, action);
          const isRefused = action.widens === true && place === "above";
          await check(someone, before, answer, isRefused ? 403 : 200, action.name);
        }
        for (const to of places) {
          const body = bodyWith(setting, to);
          const before = await newTarget(someone, rowWith(setting, place));
          const answer = await act(someone, before.id, { name: "sets it", body });
          await check(someone, before, answer, to === "above" ? 400 : 200, `sets it ${to}`);
        }
        // A new key has settings, and null is not one of them.
        if (Object.values(bodyWith(setting, place)).includes(null)) return;
        const body = { operation_id: "new", ...bodyWith(setting, place) };
        const made = await someone.ask("POST", "/api/keys", body);
        assert.equal(made.status, place === "above" ? 400 : 201, made.text);
        if (made.status === 201)
          assert.ok(isWithin(await rowOf(service, String(made.body.id)), someone.own), "the new key");
      }));
  }

  test(`a key lowers its own ${setting}, and never raises it`, () =>
    scene(async (portal, service) => {
      for (const to of places) {
        const someone = await party(portal, service, rowWith(setting, "at"));
        const answer = await act(someone, someone.own.id, { name: "", body: bodyWith(setting, to) });
        const after = await check(someone, someone.own, answer, to === "above" ? 400 : 200, to);
        if (to !== "below") continue;
        // The session has what the key has now.
        const back = await act(someone, someone.own.id, { name: "", body: bodyWith(setting, "at") });
        await check({ ...someone, own: after }, after, back, 400, "back");
        const other = await newTarget(someone, rowWith(setting, "below"));
        const raised = await act(someone, other.id, { name: "", body: bodyWith(setting, "at") });
        await check({ ...someone, own: after }, other, raised, 400, "another key");
      }
    }));
}

const widerModels = { target: { models: ["*"] }, own: { models: ["small"] } };

test("a change of several settings is held against the key that it leaves", () =>
  scene(async (portal, service) => {
    const someone = await party(portal, service, { ...widerModels.own, requestsPerMinute: 10 });
    const cases: [name: string, target: Partial<KeyRow>, body: Fields, expected: 200 | 403][] = [
      [
        "narrows the wider setting and widens another",
        { ...widerModels.target, requestsPerMinute: 5 },
        { models: ["small"], requests_per_minute: 10 },
        200,
      ],
      [
        "narrows one of two wider settings and widens another",
        { ...widerModels.target, concurrent: 1 },
        { models: ["small"], concurrent: 2 },
        403,
      ],
      ["narrows one of two wider settings", widerModels.target, { models: ["small"] }, 200],
      ["renames and revives", { ...widerModels.target, ...paused }, { name: "x", ...caps() }, 403],
    ];
    for (const [name, target, body, expected] of cases) {
      const before = await newTarget(someone, target);
      await check(someone, before, await act(someone, before.id, { name, body }), expected, name);
    }
  }));

for (const [who, change, isSuspended] of [
  ["of a key with a cap", withCap, false],
  ["of a key with a cap of 0", paused, false],
  ["in a suspended account", {}, true],
] as const) {
  test(`a session ${who} gives no key more, and takes no secret`, () =>
    scene(async (portal, service) => {
      const someone = await party(portal, service, change);
      if (isSuspended) {
        const { account } = someone;
        await service.ledger.apply({
          kind: "state",
          account,
          op: "stop",
          to: { kind: "suspend" },
          by: "test",
        });
      }
      const made = await someone.ask("POST", "/api/keys", { operation_id: "new" });
      assert.equal(made.status, 403, made.text);
      for (const action of othersFor("models")) {
        const before = await newTarget(someone, { ...action.target });
        const isOfName = action.method === "DELETE" || (action.body !== undefined && "name" in action.body);
        const isAllowed = isSuspended ? action.widens !== true : isOfName;
        await check(
          someone,
          before,
          await act(someone, before.id, action),
          isAllowed ? 200 : 403,
          action.name,
        );
      }
    }));
}

test("a session without rights over other keys does nothing with them", () =>
  scene(async (portal, service) => {
    const someone = await party(portal, service, { portal: "own" });
    for (const action of othersFor("models")) {
      const before = await newTarget(someone, { ...action.target });
      const answer = await act(someone, before.id, action);
      assert.equal(answer.status, 404, `${action.name}: ${answer.text}`);
      assert.deepEqual(await rowOf(service, before.id), before);
    }
  }));

/** A cap of an operator by the calendar. It is 5 credits a day for two models. */
const ofOperator = capped(5, {
  ...{ align: "calendar", timezone: "Asia/Tokyo", models: ["small", "large"], byOperator: true },
});
const kept = { align: "calendar", models: ["large", "small"] };

test("a session only lowers the amount of a cap that an operator has set", () =>
  scene(async (portal, service) => {
    const someone = await party(portal, service, {});
    const cases: [what: string, body: Fields, expected: 200 | 403][] = [
      ["lowers it", caps({ credits: 4, ...kept }), 200],
      ["lowers it with its zone", caps({ credits: 4, ...kept, timezone: "Asia/Tokyo" }), 200],
      ["lowers it and adds one", caps({ credits: 3, every: "PT1H" }, { credits: 4, ...kept }), 200],
      ["raises it", caps({ credits: 6, ...kept }), 403],
      ["lengthens its period", caps({ credits: 5, ...kept, every: "P1M" }), 403],
      ["lowers it with another period", caps({ credits: 4, ...kept, every: "P1M" }), 403],
      ["lowers it in other windows", caps({ credits: 4, ...kept, align: "opening" }), 403],
      ["lowers it in another zone", caps({ credits: 4, ...kept, timezone: "UTC" }), 403],
      ["lowers it for one model", caps({ credits: 4, ...kept, models: ["small"] }), 403],
      ["lowers it under another name", caps({ credits: 4, ...kept, name: "mine" }), 403],
      ["removes it", caps(), 403],
    ];
    for (const [name, body, expected] of cases) {
      const before = await newTarget(someone, ofOperator);
      const answer = await act(someone, before.id, { name, body });
      const after = await check(someone, before, answer, expected, name);
      const cap = after.caps.find(({ every }) => every === "P1D");
      assert.deepEqual([cap?.timezone, cap?.byOperator], ["Asia/Tokyo", true], name);
    }
  }));

test("caps of operators in two zones both stay, whatever zone is left out", () =>
  scene(async (portal, service) => {
    const someone = await party(portal, service, {});
    const zones = ["Asia/Tokyo", "Europe/Berlin"].flatMap(
      (timezone) => capped(5, { align: "calendar", timezone, byOperator: true }).caps ?? [],
    );
    const calendar = { credits: 5, align: "calendar" };
    const before = await newTarget(someone, { caps: zones });
    const lost = await act(someone, before.id, { name: "names one", body: caps(calendar) });
    await check(someone, before, lost, 403, "names one");
    const both = caps({ ...calendar, timezone: "Europe/Berlin" }, { ...calendar, credits: 4 });
    const lowered = await act(someone, before.id, { name: "names both", body: both });
    const after = await check(someone, before, lowered, 200, "names both");
    assert.deepEqual(
      after.caps.map(({ timezone, amountMicro }) => [timezone, amountMicro]),
      [
        ["Europe/Berlin", 5_000_000],
        ["Asia/Tokyo", 4_000_000],
      ],
    );
  }));

test("a cap of a holder is the holder's, and a repetition changes nothing", () =>
  scene(async (portal, service) => {
    const someone = await party(portal, service, {});
    const { id } = await newTarget(someone, {});
    const body = { operation_id: "mine", ...caps({ credits: 5, align: "calendar" }) };
    for (const what of ["a change", "a repetition"]) {
      const answer = await someone.ask("PATCH", `/api/keys/${id}`, body);
      assert.equal(answer.status, 200, `${what}: ${answer.text}`);
      assert.partialDeepStrictEqual((await rowOf(service, id)).caps, [
        { timezone: "UTC", byOperator: false },
      ]);
    }
    const removed = await act(someone, id, { name: "removes it", body: caps() });
    assert.deepEqual([removed.status, removed.body.spending_caps], [200, []]);
  }));

test("patterns of models are within patterns, and a new key inherits them", () =>
  scene(async (portal, service) => {
    const someone = await party(portal, service, { models: ["sm*", "large"] });
    const made = await someone.ask("POST", "/api/keys", { operation_id: "inherits" });
    assert.deepEqual([made.status, made.body.models], [201, ["sm*", "large"]]);
    for (const [models, status] of [
      [["small"], 201],
      [["sma*"], 201],
      [["s*"], 400],
      [["*"], 400],
      [["smx*"], 400],
    ] as const) {
      const answer = await someone.ask("POST", "/api/keys", { operation_id: `models ${models}`, models });
      assert.equal(answer.status, status, `${models}: ${answer.text}`);
    }
  }));

test("a revoked key stays revoked, whatever a session does", () =>
  scene(async (portal, service) => {
    const someone = await party(portal, service, {});
    for (const action of othersFor("models").filter(({ method }) => method !== "DELETE")) {
      const before = await newTarget(someone, { ...action.target, revokedMs: now });
      const answer = await act(someone, before.id, action);
      assert.equal(answer.status, 409, `${action.name}: ${answer.text}`);
      assert.deepEqual(await rowOf(service, before.id), before);
    }
  }));
