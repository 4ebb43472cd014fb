/**
 * Each change of operators, once over HTTP and once by the command line, on equal new accounts:
 * the results are equal up to ids and times. A repetition changes nothing, and the same id with
 * other values is refused. Subjects that do not exist, or have ended, are refused alike.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import * as accounts from "../../src/actions/accounts.ts";
import type { ActionTexts } from "../../src/actions/action.ts";
import { routeOf } from "../../src/actions/action.ts";
import * as credits from "../../src/actions/credits.ts";
import * as keys from "../../src/actions/keys.ts";
import * as links from "../../src/actions/links.ts";
import * as portalActions from "../../src/actions/portal.ts";
import { showKey } from "../../src/actions/views.ts";
import {
  argvOf,
  commands,
  isChange,
  operatorActions,
  requestOf,
  rightJson,
  rowsOf,
} from "../fixtures/actions.ts";
import { type Ran, runCli } from "../fixtures/cli-host.ts";
import { planOf, revokeKey } from "../fixtures/ledger-rows.ts";
import { type Fields, fieldsOf, type OperatorAnswer, refused, startOperator } from "../fixtures/operator.ts";
import { startPortal } from "../fixtures/portal.ts";
import { startService } from "../fixtures/service.ts";

const configuration = `plans:
  test: { base: { credits: 1000, every: P1D }, overage: { credits: 200, every: P1M } }
models:
  small: { engine: llama, source: default, price: { prompt: 10, completion: 30 } }
portal: { url: "https://portal.example" }
`;

/** Both faces on one ledger. */
async function startFaces() {
  await using opened = new AsyncDisposableStack();
  const service = opened.use(await startService({ otherPlans: [planOf("big", 5000, 200)] }));
  const operator = opened.use(await startOperator(service));
  const cwd = mkdtempSync(path.join(tmpdir(), "inkwell-faces-"));
  opened.defer(() => rmSync(cwd, { recursive: true }));
  writeFileSync(path.join(cwd, "inkwell.yaml"), configuration);
  // Each command closes the store that it was given.
  const { close } = service.store;
  service.store.close = async () => {};
  opened.defer(() => {
    service.store.close = close;
  });
  const services = { openStore: async () => ({ store: service.store, ledger: service.ledger }) };
  const kept = opened.move();
  return {
    service,
    operator,
    /** Runs an action over HTTP. */
    send(action: ActionTexts, json: Fields): Promise<OperatorAnswer> {
      const [method, url, body] = requestOf(action, json);
      return operator.ask(method, url, body === undefined ? {} : { body });
    },
    inkwell: (...argv: string[]): Promise<Ran> => runCli(argv, { cwd, services }),
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

interface Step {
  action: ActionTexts;
  /** Values for an account and its key. */
  json(who: string, key: string): Fields;
  /** Words of the command. Default: those of the action. */
  words?: string;
  /** Other values under the same id, and the code with which they are refused. */
  other?: Fields;
  code?: string;
}

const settings: Fields = {
  ...rightJson(keys.makeKey.input, Object.keys(keys.makeKey.input)),
  name: "first",
  portal: "account",
};
/** What the key has then. */
const shown = {
  name: "first",
  models: ["small"],
  portal: "account",
  expires_at: "2100-01-31T00:00:00.000Z",
  limits: { requests_per_minute: 5, tokens_per_minute: 5, concurrent: 5 },
  spending_caps: [
    {
      ...{ name: "P1D", credits: 5, every: "P1D", align: "calendar", timezone: "Europe/Berlin" },
      ...{ models: ["*"], left_micro: 5_000_000 },
    },
  ],
};
const differs = { code: "operation_differs" };

const steps: Step[] = [
  {
    action: accounts.openAccount,
    words: "account create <id>",
    json: (who) => ({ id: who, plan: "test", owner: "Ada Ltd", external_id: `crm-${who}` }),
    other: { plan: "big" },
    code: "account_exists",
  },
  {
    action: accounts.setContact,
    words: "account set <account>",
    json: (account) => ({ account, email: "ada@example.com", note: "pays late" }),
  },
  {
    action: accounts.previewPlan,
    words: "account set <account> --dry-run",
    json: (account) => ({ account, plan: "big", at: "now" }),
  },
  {
    action: accounts.changePlan,
    words: "account set <account>",
    json: (account) => ({ account, operation_id: `plan-${account}`, plan: "big" }),
    other: { at: "now" },
    ...differs,
  },
  {
    action: accounts.setEnd,
    words: "account set <account>",
    json: (account) => ({ account, operation_id: `end-${account}`, ends_at: "2100-01-31" }),
    other: { ends_at: null },
    ...differs,
  },
  {
    action: credits.addCredits,
    words: "credits add <account> <credits>",
    json: (account) => ({ account, payment_id: `pay-${account}`, credits: 50 }),
    other: { credits: 51 },
    code: "payment_differs",
  },
  {
    action: credits.adjustCredits,
    json: (account) => ({
      account,
      operation_id: `give-${account}`,
      credits: 30,
      reason: "goodwill",
      expires_at: "2099-01-31",
    }),
    other: { reason: "a slip" },
    ...differs,
  },
  {
    action: credits.adjustCredits,
    json: (account) => ({ account, operation_id: `take-${account}`, credits: -10, reason: "a slip" }),
    other: { credits: -9 },
    ...differs,
  },
  {
    action: credits.refundCredits,
    json: (who) => ({ account: who, refund_id: `back-${who}`, payment_id: `pay-${who}`, credits: 20 }),
    other: { credits: 19 },
    code: "refund_differs",
  },
  {
    action: keys.makeKey,
    json: (account) => ({ ...settings, account, operation_id: `key-${account}` }),
    other: { name: "second" },
    ...differs,
  },
  {
    action: keys.changeKey,
    json: (who, key) => ({ key, operation_id: `set-${who}`, name: "other", concurrent: 9 }),
    other: { name: "third" },
    ...differs,
  },
  {
    action: keys.rotateKey,
    json: (who, key) => ({ key, operation_id: `rotate-${who}`, overlap: "PT1H" }),
    other: { overlap: "none" },
    ...differs,
  },
  { action: showKey, json: (_, key) => ({ key }) },
  { action: keys.revokeKey, json: (_, key) => ({ key }) },
  {
    action: accounts.changeState,
    words: "account suspend <account>",
    json: (account) => ({ account, operation_id: `suspend-${account}`, state: "suspended" }),
    other: { state: "closed" },
    ...differs,
  },
  {
    action: accounts.changeState,
    words: "account resume <account>",
    json: (account) => ({ account, operation_id: `resume-${account}`, state: "active" }),
    other: { state: "closed" },
    ...differs,
  },
  {
    action: accounts.changeState,
    words: "account close <account> --yes",
    json: (account) => ({ account, operation_id: `close-${account}`, state: "closed" }),
    other: { state: "active" },
    ...differs,
  },
];

/** Returns the words of the command of a step. */
function argvFor({ action, words = action.cli ?? "" }: Step, json: Fields): string[] {
  const hasOption = ([name]: [string, unknown]) =>
    name !== "state" && (name !== action.once || action.input[name]?.option !== undefined);
  return argvOf({ words, fields: action.input }, Object.fromEntries(Object.entries(json).filter(hasOption)));
}

/** Ids, secrets and times differ. */
function plain(value: unknown): unknown {
  const text = JSON.stringify(value)
    .replaceAll(/\bbob\b/g, "ada")
    .replaceAll(/key_[0-9a-f]{16}/g, "key_0")
    .replaceAll(/ink_[0-9A-Za-z]{40}/g, "ink_0")
    .replaceAll(/"last_four":"\w{4}"/g, "")
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "then");
  return JSON.parse(text.replaceAll(/([{,]),/g, "$1"));
}

/** Changes of an account or a key, in contrast to those of the service. */
function isOfLedger(action: ActionTexts): boolean {
  const isOfPerson = "person" in action.input || "front_end" in action.input;
  // Each link is another one, so a repetition has another result: see invitations and links.
  const isInvitation = action.id === accounts.inviteAccount.id || action.id === links.createLink.id;
  return (
    isChange(action) &&
    // Those of many accounts have no command: see many-accounts.test.ts.
    !("accounts" in action.input) &&
    !isOfPerson &&
    !isInvitation &&
    ["account", "key", "plan"].some((name) => name in action.input)
  );
}

test("every change has the same result over HTTP and by the command line, and counts once", async (t) => {
  await using faces = await startFaces();
  const { service, operator, send, inkwell } = faces;
  const made = { ada: "", bob: "" };
  const tested = new Set(steps.map(({ action }) => action.id));
  for (const { id } of operatorActions.filter(isOfLedger)) assert.ok(tested.has(id), `${id} has a step`);
  for (const step of steps) {
    const { action, other, code = "" } = step;
    await t.test(`${action.title}: ${step.words ?? action.cli}`, async () => {
      const json = step.json("ada", made.ada);
      const { status, body, text } = await send(action, json);
      assert.ok(status < 300, text);
      if (action.id === "makeKey") {
        made.ada = String(body.id);
        assert.partialDeepStrictEqual(body, shown);
      }
      const ran = await inkwell("--json", ...argvFor(step, step.json("bob", made.bob)));
      assert.equal(ran.code, 0, ran.stdout + ran.stderr);
      const document = JSON.parse(ran.stdout);
      if (action.id === "makeKey") made.bob = String(document.id);
      assert.deepEqual(plain(document), plain(body));
      const before = rowsOf(service);
      const again = await send(action, json);
      const isShownOnce = typeof body.key === "string" && body.key.startsWith("ink_");
      const same = { ...body, ...("again" in body && { again: true }), ...(isShownOnce && { key: null }) };
      assert.deepEqual([again.status, plain(again.body)], [200, plain(same)], again.text);
      if (other !== undefined) {
        const message = refused(await send(action, { ...json, ...other }), 409, code);
        assert.match(message, /before|already|with 50 credits instead of 51/);
      }
      if (action.once === "operation_id") {
        const elsewhere = { ...json, ...("account" in json ? { account: "test" } : { key: "key1" }) };
        const answer = await send(action, elsewhere);
        const message = refused(answer, 409, "operation_differs");
        assert.match(message, /changed account ada before\. Nothing has changed/);
        assert.equal(fieldsOf(answer.body.error).param, "operation_id");
        const ofPlan = { ...json, operation_id: "plan-ada" };
        if (action.id !== "changePlan") refused(await send(action, ofPlan), 409, "operation_differs");
      }
      assert.deepEqual(rowsOf(service), before, "nothing has changed");
    });
  }
  // Both faces have written the same into the journal, but for who it was.
  const [journal, ofCommands] = await Promise.all(
    ["ada", "bob"].map(async (who) =>
      (await operator.all(`/admin/accounts/${who}/journal`, 500)).map(({ operation, ...row }) => ({
        ...row,
        operation: operation !== null,
        by: String(row.by).startsWith("command_line:") ? "owner" : row.by,
        sentence: String(row.sentence).replace(/^.+ \(command line\)/, "The owner"),
        outcome: null,
      })),
    ),
  );
  assert.deepEqual(plain(ofCommands), plain(journal));
});

test("an account or a key that does not exist is refused by every action", async () => {
  await using faces = await startFaces();
  const { service, send, inkwell } = faces;
  const before = rowsOf(service);
  for (const action of operatorActions) {
    const { names } = routeOf(action);
    const inFilter = action.refuses.includes("account_not_found") ? ["account"] : [];
    // A person who does not exist is refused before the account.
    const wanted = names.includes("person") ? [] : [...names, ...inFilter];
    for (const name of wanted.filter((each) => each === "account" || each === "key")) {
      const json = { ...rightJson(action.input, ["name"]), [name]: "nobody" };
      const message = refused(await send(action, json), 404, `${name}_not_found`);
      assert.match(message, name === "key" ? /There is no key "nobody"/ : /There is no account nobody/);
    }
  }
  const ofSubject = ({ words }: { words: string }) =>
    /<account>|<key>/.test(words) && !words.includes("<person>");
  for (const command of commands.filter(ofSubject)) {
    const subject = command.words.includes("<key>") ? "key" : "account";
    const json = { ...rightJson(command.fields, ["name"]), [subject]: "nobody" };
    for (const change of changesOf(command.words)) {
      const ran = await inkwell(...argvOf(command, { ...json, ...change }));
      assert.deepEqual([ran.code, ran.stdout], [1, ""], command.words);
      assert.match(ran.stderr, new RegExp(`^There is no ${subject} "?nobody"?\\.`));
    }
  }
  assert.deepEqual(rowsOf(service), before);
});

/** Values of the commands that stand for several actions. */
function changesOf(words: string): Fields[] {
  if (words.startsWith("account set")) return [{ plan: "big" }, { ends_at: "2100-01-31" }, { owner: "x" }];
  return words.startsWith("credits add") ? [{ payment_id: "p" }] : [{}];
}

test("a closed account and a revoked key are refused by every action that names it", async () => {
  await using faces = await startFaces();
  const { service, operator, send, inkwell } = faces;
  await operator.post("/admin/accounts", { id: "gone", plan: "test" });
  await operator.post("/admin/accounts/gone/state", { operation_id: "close", state: "closed" });
  await service.addKey({ id: "ended" });
  await revokeKey(service.store, "ended");
  const before = rowsOf(service);
  for (const [code, subject] of [
    ["account_closed", { account: "gone" }],
    ["key_revoked", { key: "ended" }],
  ] as const) {
    const found = operatorActions.filter(({ refuses }) => refuses.includes(code));
    assert.ok(found.length > 1);
    for (const action of found) {
      const json = { ...rightJson(action.input, ["name"]), ...subject, state: "active" };
      const { state: _, ...others } = json;
      refused(await send(action, "state" in action.input ? json : others), 409, code);
    }
  }
  for (const argv of ["close gone --yes", "suspend gone", "resume gone", "set gone --plan big --dry-run"]) {
    const ran = await inkwell("account", ...argv.split(" "));
    assert.equal(ran.code, 1, argv);
    assert.match(ran.stderr, /^Account gone is closed\. Nothing has changed\./);
  }
  for (const argv of ["set ended --name x", "rotate ended"]) {
    assert.match((await inkwell("key", ...argv.split(" "))).stderr, /ended is revoked, which is final/);
  }
  assert.deepEqual(rowsOf(service), before);
});

test("every change of the holder of a key counts once", async () => {
  await using service = await startService();
  await using portal = await startPortal(service);
  const cookie = await portal.signIn(await service.addKey({ id: "boss", portal: "account" }));
  const send = (action: ActionTexts, json: object) => {
    const [method, url, body] = requestOf(action, { ...json });
    return portal.ask(method, url, { headers: { cookie }, ...(body !== undefined && { body }) });
  };
  const { portal: _, account: __, acts_for: ___, ...own } = settings;
  for (const [action, json, other] of [
    [portalActions.makeOwnKey, { ...own, operation_id: "make" }, { name: "second" }],
    [portalActions.changeOwnKey, { key: "key1", operation_id: "set", name: "x" }, { name: "y" }],
    [portalActions.rotateOwnKey, { key: "key1", operation_id: "rotate" }, { overlap: "none" }],
    [portalActions.revokeOwnKey, { key: "key1" }, null],
  ] as const) {
    const first = await send(action, json);
    assert.ok(first.status < 300, first.text);
    const before = rowsOf(service);
    const again = await send(action, json);
    const secret = "key" in first.body ? { key: null } : {};
    assert.deepEqual([again.status, again.body], [200, { ...first.body, ...secret }], action.id);
    if (other !== null) refused(await send(action, { ...json, ...other }), 409, "operation_differs");
    assert.deepEqual(rowsOf(service), before, "nothing has changed");
  }
});
