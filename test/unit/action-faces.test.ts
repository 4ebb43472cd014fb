/**
 * The table of actions is whole, and every face offers exactly its actions: the routes of both
 * listeners, the commands and the dialogs are those of the table and a few that are listed here.
 */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { routeOf } from "../../src/actions/action.ts";
import * as credits from "../../src/actions/credits.ts";
import { catalogue } from "../../src/errors.ts";
import { commands, described, isChange, operatorActions, portalActions } from "../fixtures/actions.ts";
import { cliLedger } from "../fixtures/cli-ledger.ts";
import { fieldsOf, startOperator } from "../fixtures/operator.ts";
import { startPortal } from "../fixtures/portal.ts";
import { startService } from "../fixtures/service.ts";

const ledger = cliLedger();
const root = path.join(import.meta.dirname, "../..");
const listeners = { operator: operatorActions, portal: portalActions };

/** Routes that are no actions, or serve one in another way. */
const otherRoutes = {
  operator: [
    "showOverview",
    "tryKey",
    "signIn",
    "showSignIn",
    "beginSignIn",
    "showSession",
    "signOut",
    "makeSignInCode",
    "listSessions",
    "signOutEverywhere",
  ],
  portal: [
    "showAccount",
    "listModels",
    "chat",
    "showLive",
    "signIn",
    "showSignIn",
    "beginSignIn",
    "askForLink",
    "askToJoin",
    "showSession",
    "listSessions",
    "signOut",
    "signOutEverywhere",
  ],
};

/** Commands that wrap actions: see docs/decisions/0077-one-table-of-actions.md. */
const wrappers = [
  "account create",
  "account set",
  "account close",
  "account suspend",
  "account resume",
  "account import",
  "credits add",
  "key lookup",
  "usage",
  "requests stop",
  "plans apply",
];
/** Commands that list all pages of the store's rows, or show several objects. */
const lists = [
  "account list",
  "account show",
  "account journal",
  "key list",
  "balance",
  "requests list",
  "credits payments",
  "credits report",
  "plans list",
  "operator list",
  "events endpoints",
  "events deliveries",
  "person list",
  "link list",
];
/** Commands that are about the program and its files. */
const ofProgram = [
  "serve",
  "reload",
  "console",
  "chat",
  "models",
  "models list",
  "models pull",
  "config check",
  "audit",
  "backup",
  "clock accept",
];

/** Changes without a dialog: those of a state have three, the others a page of their own. */
const withoutForm = ["changeMail", "changePersonState", "changeState"];

for (const [listener, actions] of Object.entries(listeners)) {
  test(`every action of the ${listener}'s listener is described as a whole`, () => {
    for (const key of ["id", "http"] as const) {
      const values = actions.map((action) => action[key]);
      assert.deepEqual(values, [...new Set(values)], `each ${key} occurs once`);
    }
    for (const { id, title, role, refuses, once, input, ...action } of actions) {
      assert.match(title, /^[A-Z][^\n]*[^.]$/, id);
      assert.equal(role === "holder", listener === "portal", id);
      assert.equal(role === "viewer" && isChange({ ...action, id, title, role, refuses, input }), false);
      for (const code of refuses) assert.ok(code in catalogue, `${id}: ${code}`);
      assert.deepEqual(refuses, [...new Set(refuses)], id);
      if (once !== undefined) assert.ok(once in input && refuses.includes("operation_differs"), id);
      for (const name of routeOf(action).names) assert.ok(name in input, `${id} has ${name}`);
    }
  });
}

test("every change has a dialog and a sentence about what was done, but for those named here", () => {
  const changes = [...operatorActions, ...portalActions].filter(isChange);
  const ids = (found: readonly { id: string }[]) => found.map(({ id }) => id).toSorted();
  assert.deepEqual(ids(changes.filter(({ form }) => form === undefined)), withoutForm.toSorted());
  assert.deepEqual(ids(changes.filter(({ done }) => done === undefined)), []);
  for (const { id, done, form } of changes)
    if (form !== undefined) assert.ok(done !== undefined && form.submit !== "", id);
});

test("credits say what was done, what could not be taken, and what was done before", () => {
  const { addCredits, adjustCredits, refundCredits } = credits;
  const refund = { account: "ada", refund_id: "r1", refunded_micro: 35_000_000, rest_micro: 5_000_000 };
  const cap = { name: "dear", credits: 200, every: "P1D", align: "opening", models: ["big-*"] };
  const rest = "The other 5 are held by running requests, and can be refunded when these have ended.";
  const cases: [action: { done?: unknown }, result: object, sentence: string][] = [
    [addCredits, { account: "ada", credits: 5000, spending_caps: [] }, "5,000 credits added to ada."],
    [
      ...([adjustCredits, { account: "ada", credits: 30, spending_caps: [cap] }] as const),
      "30 promotional credits given to ada. The caps of its plan count them too: dear 200/P1D of big-*.",
    ],
    [
      ...([addCredits, { payment_id: "p1", again: true }] as const),
      "Payment p1 was counted before. Nothing has changed.",
    ],
    [adjustCredits, { account: "ada", credits: -30 }, "30 promotional credits taken from ada."],
    [refundCredits, refund, `35 credits refunded from ada. ${rest}`],
    [
      refundCredits,
      { ...refund, again: true },
      "Refund r1 was made before, of 35 credits. Nothing has changed.",
    ],
  ];
  for (const [{ done }, result, sentence] of cases) {
    assert.ok(typeof done === "function");
    assert.equal(done(result), sentence);
  }
});

test("every description is bound to code, and every form is in a page", () => {
  const bound = new Set(operatorActions);
  for (const action of described) assert.ok(bound.has(action), `${action.id} is bound`);
  for (const [folder, actions, suffix] of [
    ["console", operatorActions, ""],
    ["portal", portalActions, "Own"],
  ] as const) {
    const pages = globSync(path.join(root, `src/web/${folder}/pages/*.tsx`));
    const text = pages.map((file) => readFileSync(file, "utf8")).join("\n");
    for (const { id, form } of actions) {
      const name = id.replace(/(?=[A-Z])/, suffix);
      if (form !== undefined) assert.match(text, new RegExp(`\\b${name}\\b`), name);
    }
  }
});

for (const [listener, actions] of Object.entries(listeners)) {
  test(`the routes of the ${listener}'s listener are its actions, and those named here`, async () => {
    await using service = await startService();
    await using api = listener === "operator" ? await startOperator(service) : await startPortal(service);
    const paths = Object.entries(fieldsOf(api.document.paths));
    const routes = paths.flatMap(([url, methods]) =>
      Object.entries(fieldsOf(methods)).map(([method, operation]) => {
        const { operationId, summary } = fieldsOf(operation);
        return { id: String(operationId), http: `${method.toUpperCase()} ${url}`, title: summary };
      }),
    );
    const others: readonly string[] = listener === "operator" ? otherRoutes.operator : otherRoutes.portal;
    const isOther = ({ id, http }: { id: string; http: string }) =>
      others.includes(id) && !actions.some((action) => action.http === http);
    assert.deepEqual(
      routes
        .filter(isOther)
        .map(({ id }) => id)
        .toSorted(),
      others.toSorted(),
    );
    const byRoute = (one: { http: string }, other: { http: string }) => (one.http < other.http ? -1 : 1);
    assert.deepEqual(
      routes.filter((each) => !isOther(each)).toSorted(byRoute),
      actions.map(({ id, http, title }) => ({ id, http, title })).toSorted(byRoute),
    );
  });
}

test("the commands are those of actions, and those named here", async () => {
  assert.ok(wrappers.length <= 12, "a dozen wrappers is enough");
  const made = commands.flatMap(({ words, action }) => (action === undefined ? [] : [nameOf(words)]));
  assert.deepEqual(
    (await commandsOf()).toSorted(),
    [...made, ...wrappers, ...lists, ...ofProgram].toSorted(),
  );
  for (const { words, action } of commands)
    if (action === undefined) assert.ok(wrappers.includes(nameOf(words)));
  const named = operatorActions.flatMap(({ cli = [] }) => cli);
  for (const words of named)
    assert.ok([...made, ...wrappers, ...lists, "reload"].includes(nameOf(words)), words);
});

function nameOf(words: string): string {
  return words.replace(/ [<[].*/, "");
}

/** Returns the words of all commands, from the help. */
async function commandsOf(...group: string[]): Promise<string[]> {
  const { stdout } = await ledger.inkwell(...group, "--help");
  const found = [...stdout.matchAll(/^ {2}(\w[\w-]*)(?: (?:\[\w+\]|<\w+>|\.\.\.))* {2,}\w/gm)];
  const names = found.filter(([, name]) => name !== "help");
  const words = await Promise.all(
    names.map(async ([line, name = ""]) => {
      const command = [...group, name];
      const isGroup = group.length === 0 && / (?:\.\.\.|\[command\]) /.test(line);
      const inner = isGroup ? await commandsOf(...command) : [];
      return inner.length > 0 && !line.includes("[command]") ? inner : [command.join(" "), ...inner];
    }),
  );
  return words.flat();
}
