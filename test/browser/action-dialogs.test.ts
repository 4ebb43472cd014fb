/**
 * Dialogs of the table of actions, in console and portal, before a release all of them: title,
 * inputs, labels, hints and required marks are those of its description. A wrong value is refused
 * at its field, with its label in the place of the API's name, and nothing typed is lost. A right
 * one says what was done.
 */
import assert from "node:assert/strict";
import type { Locator, Page } from "playwright-core";
import * as accounts from "../../src/actions/accounts.ts";
import { routeOf } from "../../src/actions/action.ts";
import * as credits from "../../src/actions/credits.ts";
import { type Fields, plainParts } from "../../src/actions/field.ts";
import * as keys from "../../src/actions/keys.ts";
import * as links from "../../src/actions/links.ts";
import * as operatorKeys from "../../src/actions/operator-keys.ts";
import * as people from "../../src/actions/people.ts";
import * as portal from "../../src/actions/portal.ts";
import { type Described, operatorActions, portalActions } from "../fixtures/actions.ts";
import { type Answer, browserTests, type Visit } from "../fixtures/browser.ts";
import {
  assertAccessible,
  assertRefused,
  choose,
  confirmed,
  open,
  openMore,
  submit,
  typePayment,
} from "../fixtures/console.ts";
import { addPerson } from "../fixtures/ledger-file.ts";
import { keyOf, openPortal } from "../fixtures/portal-pages.ts";
import { wordsIn } from "../fixtures/shell-words.ts";
import { some } from "../fixtures/thorough.ts";

const test = browserTests({ pages: "both" });

const account = "formed";
const long = "x".repeat(300);

type Texts = Readonly<Record<string, string>>;

interface Refusal {
  /** Typed into the fields with these labels, in this order. */
  type: Texts;
  /** Label of the field that is refused, and what its message says. */
  at: string;
  says: RegExp;
  /** Response of the service; absent if the page refuses the value by itself. */
  status?: number;
}

interface Dialog {
  action: Described;
  /** Path of the page that has the dialog. */
  path: string;
  open(page: Page): Promise<void>;
  /** In the title. */
  subject?: string;
  hasPreview?: boolean;
  refusals?: readonly Refusal[];
  right?: Texts;
  /** Fields that the page fills, and inputs of its own. */
  unlike?: { filled?: readonly string[]; own?: readonly string[]; required?: readonly string[] };
}

const press = (name: string) => async (page: Page) => {
  await page.getByRole("button", { name, exact: true }).click();
  await page.getByRole("dialog").waitFor();
};
const menu = (action: string) => (page: Page) => choose(page, action);
const createKey = async (page: Page) => {
  await press("Create a key")(page);
  await openMore(page);
};

const keySettings: Pick<Dialog, "refusals" | "right"> = {
  refusals: [
    { type: { Name: long }, at: "Name", says: /Name must be .* 64 characters/, status: 400 },
    {
      type: { Name: "thesis", "Budget in credits": "a lot" },
      at: "Budget in credits",
      says: /Enter a whole number/,
    },
    {
      ...{ type: { "Budget in credits": "500" }, at: "Budget period", status: 400 },
      says: /Budget period is missing/,
    },
    {
      type: { "Budget in credits": "", "Requests per minute": "0" },
      at: "Requests per minute",
      says: /at least 1/,
    },
    { type: { "Requests per minute": "1.5" }, at: "Requests per minute", says: /whole number/ },
    {
      type: { "Requests per minute": "", "Expires at (UTC)": "2020-01-01T00:00" },
      at: "Expires at (UTC)",
      says: /expired already/,
      status: 400,
    },
  ],
  right: { "Expires at (UTC)": "", "Budget in credits": "500", "Budget period": "P1M" },
};

const ofAccount = { path: `/accounts/${account}`, subject: account };
const ofKeys = { path: `/accounts/${account}/keys`, subject: account };
const inPortal = { path: "/keys" };

/** The dialog of a key with this name, which no other dialog changes. */
function ofKey(name: string, button: string): Pick<Dialog, "subject" | "open"> {
  return { subject: name, open: press(`${button} the key ${name}`) };
}

const className = "Geometry 7";

/** The dialog of a button on the page of the link. */
function ofLink(button: string): Pick<Dialog, "path" | "subject" | "open"> {
  const follow = async (page: Page) => {
    await page.getByRole("link", { name: className, exact: true }).click();
    await press(button)(page);
  };
  return { path: "/links", subject: className, open: follow };
}

const dialogs: Dialog[] = [
  {
    action: links.createLink,
    path: "/links",
    open: press("Make a link"),
    refusals: [
      {
        type: {
          Name: "Physics",
          Plan: "starter",
          Seats: "0",
          "Nobody can join after (UTC)": "2099-01-01T00:00",
        },
        at: "Seats",
        says: /at least 1/,
      },
      { type: { Seats: "3", Plan: "gone" }, at: "Plan", says: /gone/, status: 400 },
    ],
    right: { Plan: "starter" },
  },
  { action: links.setLink, ...ofLink("Change"), right: { Seats: "5" } },
  { action: links.rotateLink, ...ofLink("New link") },
  { action: links.endLink, ...ofLink("End") },
  { action: links.closeLinkAccounts, ...ofLink("Close all accounts") },
  {
    action: operatorKeys.makeOperatorKey,
    path: "/operators",
    open: press("Make an operator key"),
    refusals: [
      { type: { Role: "support" }, at: "Name", says: /Name is missing/ },
      { type: { Name: long }, at: "Name", says: /Name must be .* 64 characters/, status: 400 },
      {
        type: { Name: "ci", "Expires at (UTC)": "2020-01-01T00:00" },
        at: "Expires at (UTC)",
        says: /must be in the future/,
        status: 400,
      },
    ],
    right: { "Expires at (UTC)": "" },
  },
  {
    action: operatorKeys.endOperatorKey,
    path: "/operators",
    subject: "old",
    open: press("End old"),
    right: {},
  },
  {
    action: people.addPerson,
    path: "/people",
    open: press("Add a person behind a front end"),
    refusals: [
      {
        type: { "Front end": "webiu", "Value of the header": "7", Account: "other" },
        at: "Front end",
        says: /no front end "webiu"/,
        status: 400,
      },
    ],
    right: { "Front end": "webui" },
  },
  {
    action: people.linkPerson,
    path: "/people",
    subject: "Linda <b>L</b>",
    open: press("Link an account to Linda <b>L</b>"),
    refusals: [
      { type: { Account: "Not an id!" }, at: "Account", says: /Account must be .*lower-case/, status: 400 },
    ],
    right: { Account: "other" },
  },
  {
    action: people.erasePerson,
    path: "/people",
    subject: "Erasmus",
    open: press("Erase the data of Erasmus"),
    right: {},
  },
  {
    action: accounts.openAccount,
    path: "/accounts",
    open: press("Open an account"),
    unlike: { own: ["key"] },
    refusals: [
      { type: { Owner: "Jo", Note: "A note" }, at: "Account", says: /Account is missing/ },
      { type: { Account: "Not an id!" }, at: "Account", says: /Account must be .*lower-case/, status: 400 },
      { type: { Account: account }, at: "Account", says: /exists already\. Nothing/ },
      { type: { Account: "opened", Owner: long }, at: "Owner", says: /Owner must be .*200/, status: 400 },
      { type: { Owner: "Jo", "E-mail": "nobody" }, at: "E-mail", says: /E-mail must be/, status: 400 },
      {
        type: { "E-mail": "", "External id": "crm-other" },
        at: "External id",
        says: /crm-other/,
        status: 409,
      },
    ],
    right: { "External id": "" },
  },
  {
    ...ofAccount,
    action: credits.addCredits,
    open: press("Top up"),
    refusals: [
      { type: { "Payment id": "invoice <i>1</i>" }, at: "Credits", says: /Credits is missing/ },
      { type: { Credits: "0" }, at: "Credits", says: /at least 1/ },
      { type: { Credits: "-5" }, at: "Credits", says: /at least 1/ },
      { type: { Credits: "12.5" }, at: "Credits", says: /whole number/ },
      { type: { Credits: "999999999999999" }, at: "Credits", says: /Credits must be/, status: 400 },
      { type: { Credits: "5", "Payment id": "pay-other" }, at: "Payment id", says: /pay-other/, status: 409 },
      { type: { "Payment id": "" }, at: "Payment id", says: /Payment id is missing/ },
    ],
    right: { "Payment id": "invoice <i>1</i>" },
  },
  {
    ...ofAccount,
    action: credits.adjustCredits,
    open: menu("Adjust credits"),
    hasPreview: true,
    refusals: [
      { type: { Credits: "10" }, at: "Reason", says: /Reason is missing/ },
      { type: { Reason: "A correction", Credits: "" }, at: "Credits", says: /missing/ },
      { type: { Credits: "0" }, at: "Credits", says: /Credits must not be 0/, status: 400 },
      { type: { Credits: "10", Reason: long }, at: "Reason", says: /Reason must be .*200/, status: 400 },
    ],
    right: { Reason: "A correction" },
  },
  {
    ...ofAccount,
    action: credits.refundCredits,
    hasPreview: true,
    async open(page) {
      await choose(page, "Refund a payment");
      await typePayment(page);
    },
    refusals: [
      { type: { Credits: "-200", "Payment id": "pay-mine" }, at: "Credits", says: /at least 1/ },
      { type: { Credits: "5" }, at: "Reason", says: /Reason is missing/ },
      { type: { Credits: "200000", Reason: "returned" }, at: "Credits", says: /enter at most 300/ },
      { type: { Credits: "5", Reason: long }, at: "Reason", says: /Reason must be .*200/, status: 400 },
      { type: { Reason: "returned", "Payment id": "" }, at: "Payment id", says: /missing/ },
      { type: { "Payment id": "pay-other" }, at: "Payment id", says: /pay-other/, status: 404 },
    ],
    right: { "Payment id": "pay-mine" },
    unlike: { filled: ["refund_id"], own: ["payment"], required: ["reason"] },
  },
  {
    ...ofAccount,
    action: accounts.setContact,
    open: menu("Edit the contact"),
    refusals: [
      { type: { Owner: long, Note: "kept" }, at: "Owner", says: /Owner must be .*200/, status: 400 },
      { type: { Owner: "Jo", "E-mail": "a@b@c" }, at: "E-mail", says: /E-mail must be/, status: 400 },
      {
        type: { "E-mail": "", "External id": "crm-other" },
        at: "External id",
        says: /crm-other/,
        status: 409,
      },
    ],
    right: { "External id": "crm-2" },
  },
  {
    ...ofAccount,
    action: accounts.inviteAccount,
    open: menu("Invite a person"),
    refusals: [
      { type: {}, at: "E-mail", says: /no e-mail address/, status: 400 },
      { type: { "E-mail": "a@b@c" }, at: "E-mail", says: /E-mail must be/, status: 400 },
    ],
    right: { "E-mail": "formed@example.com" },
  },
  {
    ...ofAccount,
    action: accounts.changePlan,
    open: menu("Change the plan"),
    hasPreview: true,
    right: { When: "now" },
  },
  {
    ...ofAccount,
    action: accounts.setEnd,
    open: menu("Set the end date"),
    hasPreview: true,
    right: { "Closes at (UTC)": "2099-03-31T18:00" },
  },
  { ...ofKeys, action: keys.makeKey, open: createKey, ...keySettings },
  { ...ofKeys, action: keys.changeKey, ...ofKey("edited", "Edit"), ...keySettings },
  { ...ofKeys, action: keys.rotateKey, ...ofKey("rotated", "Rotate") },
  { ...ofKeys, action: keys.revokeKey, ...ofKey("revoked", "Revoke") },
  { ...inPortal, action: portal.makeOwnKey, open: createKey, ...keySettings, unlike: { required: ["name"] } },
  { ...inPortal, action: portal.changeOwnKey, ...ofKey("changed", "Edit"), ...keySettings },
  { ...inPortal, action: portal.rotateOwnKey, ...ofKey("replaced", "Rotate") },
  { ...inPortal, action: portal.revokeOwnKey, ...ofKey("ended", "Revoke"), hasPreview: true },
];

let prepared: Promise<string> | null = null;

/** Two accounts with a payment, and keys. Returns the secret of a key that manages the others. */
async function prepare({ service }: Pick<Visit, "service">): Promise<string> {
  for (const id of [account, "other"]) {
    const contact = { external_id: `crm-${id}` };
    await service.call("POST", "/admin/accounts", { id, plan: "starter", ...contact });
    const payment_id = id === account ? "pay-mine" : "pay-other";
    await service.call("POST", `/admin/accounts/${id}/topups`, { payment_id, credits: 300 });
  }
  const seats = { name: className, plan: "starter", seats: 3, ends_at: "2099-01-01T00:00:00Z" };
  await service.call("POST", "/admin/links", { ...seats, operation_id: "class" });
  await service.call("POST", "/admin/operator-keys", { name: "old", role: "viewer", operation_id: "old" });
  const names = dialogs.flatMap(({ action, subject }) => ("key" in action.input && subject ? [subject] : []));
  for (const name of names) await keyOf(service, account, { name });
  await keyOf(service, "other", { name: "front end", acts_for: { name: "webui", header: "x-person" } });
  for (const [n, name] of ["Linda <b>L</b>", "Erasmus"].entries())
    addPerson(service.folder, n, { name, email: `${n}@x.example` });
  return (await keyOf(service, account, { name: "boss", portal: "account" })).secret;
}

async function openPage(visit: Visit, { action, path }: Dialog): Promise<void> {
  prepared ??= prepare(visit);
  const secret = await prepared;
  if (action.role === "holder") await openPortal(visit, path, secret);
  else await open(visit, path);
}

/** Whether an input offers values, and none of them is empty. */
function isOffered({ presets = [["", ""]] }: Fields[string]): boolean {
  return !presets.some(([value]) => value === "");
}

/** Returns the inputs that a description asks for when its dialog opens. */
function inputsFor({ action, unlike = {} }: Dialog): string[] {
  const { names } = routeOf(action);
  const filled = [...names, action.once, ...(unlike.filled ?? [])];
  const inputsOf = (fields: Fields, path = ""): string[] =>
    Object.entries(fields).flatMap(([part, field]) => {
      const name = path + part;
      if (field.kind === "group") return inputsOf(field.fields, `${name}.`);
      // A list that is empty, or has one item, has inputs for its parts. Models are ticks.
      if (field.kind === "list") return inputsOf(plainParts(field.fields), `${name}.`);
      if (field.isShown?.({}) === false) return [];
      // An empty list of texts stands for all of them.
      const mayBeEmpty = field.kind === "texts" || field.isOptional === true || field.isNullable === true;
      const isOptional = path !== "" || mayBeEmpty;
      const hasValue = field.kind === "choice" || isOffered(field);
      const isRequired = !isOptional || hasValue || unlike.required?.includes(name) === true;
      return [[name, field.label, field.hint ?? "", isRequired].join("|")];
    });
  return inputsOf(
    Object.fromEntries(Object.entries(action.input).filter(([name]) => !filled.includes(name))),
  );
}

/** Returns the inputs of the dialog: name, label, hint, and whether it is required. */
async function shownInputs(page: Page): Promise<string[]> {
  return await page.evaluate(`[...document.querySelectorAll("dialog [name]")].map((input) => [
    input.name,
    (input.labels?.[0] ?? input.querySelector("legend")).textContent,
    document.getElementById(input.id + "-hint")?.textContent ?? "",
    input.getAttribute("aria-required") ?? false,
  ].join("|"))`);
}

async function fill(dialog: Locator, texts: Texts): Promise<void> {
  for (const [label, text] of Object.entries(texts)) {
    const input = dialog.getByLabel(label);
    if ((await input.evaluate<string, { tagName: string }>(({ tagName }) => tagName)) === "SELECT")
      await input.selectOption(text);
    else await input.fill(text);
  }
}

async function preview(page: Page, { hasPreview = false }: Dialog): Promise<void> {
  if (!hasPreview) return;
  await submit(page);
  await page.getByRole("dialog").locator(".preview").waitFor();
}

// Before a release all: one description makes a dialog, its command and its route.
for (const each of some(dialogs, 6)) {
  const { action, subject = "", refusals = [], right = {}, unlike = {} } = each;
  const { form, http, done } = action;
  test(`the dialog of ${http} is that of its description`, async (visit) => {
    const { page, service, expects } = visit;
    await openPage(visit, each);
    await each.open(page);
    const dialog = page.getByRole("dialog");
    const title = form?.title.replace("{name}", subject);
    assert.equal(await dialog.getByRole("heading").first().innerText(), title);
    const shown = (await shownInputs(page)).filter(
      (input) => !unlike.own?.includes(input.split("|", 1)[0] ?? ""),
    );
    assert.deepEqual(shown, inputsFor(each));

    const before = await journal(service);
    const typed: Record<string, string> = {};
    const { method, path } = routeOf(action);
    const sent = new RegExp(`^\\d+ ${method} ${path.replace(/\{\w+\}/g, "[^/]+")}$`);
    if (refusals.some(({ status }) => status !== undefined)) expects(sent);
    for (const { type, at, says, status } of refusals) {
      await fill(dialog, type);
      Object.assign(typed, type);
      if (status !== undefined) await preview(page, each);
      await submit(page);
      await assertRefused(dialog.getByLabel(at), says, typed);
      const messages = await dialog.getByRole("alert").allInnerTexts();
      for (const name of Object.keys(action.input))
        if (name.includes("_")) assert.ok(!messages.join(" ").includes(name), messages.join(" "));
    }
    assert.deepEqual(await journal(service), before, "nothing has changed");

    await fill(dialog, right);
    await preview(page, each);
    const url = new RegExp(`${path.replace(/\{\w+\}/g, "[^/]+")}$`);
    const answered = page.waitForResponse(
      (response) => response.request().method() === method && url.test(response.url()),
    );
    await dialog.getByRole("button", { name: form?.submit ?? "", exact: true }).click();
    const result: unknown = await (await answered).json();
    assert.ok(typeof done === "function");
    await confirmed(page, String(done(result)));
  });
}

/** Returns the words that a button copies. All tests share the clipboard of the browser. */
async function copied(page: Page, from: string): Promise<string[][]> {
  await page.evaluate("navigator.clipboard.writeText = async (text) => void (window.copied = text)");
  const button = page.getByRole("button", { name: `Copy for ${from}` });
  await button.click();
  await page.getByRole("dialog").getByText("Copied.").last().waitFor();
  return wordsIn(String(await page.evaluate("window.copied")));
}

test("a dialog of the console shows its request as curl and as a command, as it is typed", async (visit) => {
  const { page, service } = visit;
  await openPage(visit, { action: credits.addCredits, path: `/accounts/${account}`, open: press("Top up") });
  await press("Top up")(page);
  const dialog = page.getByRole("dialog");
  await dialog.getByText("As a command").click();
  await fill(dialog, { Credits: "500", "Payment id": "it's 7" });
  await assertAccessible(page);
  const [curl = []] = await copied(page, "curl");
  const [command = []] = await copied(page, "inkwell");
  assert.deepEqual(command, ["credits", "add", account, "500", "--payment", "it's 7"]);
  const sending = page.waitForRequest((request) => request.url().endsWith("/topups"));
  await submit(page);
  const sent = await sending;
  assert.deepEqual(
    [curl[1], curl[2], JSON.parse(curl.at(-1) ?? "")],
    [sent.method(), sent.url(), sent.postDataJSON()],
  );
  assert.equal(sent.url(), `${service.url}/admin/accounts/${account}/topups`);
  await dialog.waitFor({ state: "detached" });

  await choose(page, "Edit the contact");
  await dialog.getByText("As a command").click();
  await dialog.getByText("No value is changed yet.").waitFor();
  await fill(dialog, { Note: "-x" });
  assert.deepEqual(await copied(page, "inkwell"), [["account", "set", account, "--note=-x"]]);
});

test("a new account with a key is two commands, and the portal shows none", async (visit) => {
  const { page } = visit;
  await openPage(visit, { action: accounts.openAccount, path: "/accounts", open: press("Open an account") });
  await press("Open an account")(page);
  const dialog = page.getByRole("dialog");
  await dialog.getByText("As a command").click();
  await fill(dialog, { Account: "twice" });
  const [create, key = []] = await copied(page, "inkwell");
  assert.deepEqual(create, ["account", "create", "twice", "--plan", "starter"]);
  assert.deepEqual(
    [key.slice(0, 4), key.slice(5)],
    [
      ["key", "create", "twice", "--id"],
      ["--name", "first"],
    ],
  );
  await openPage(visit, { action: portal.makeOwnKey, path: "/keys", open: createKey });
  await createKey(page);
  assert.equal(await dialog.getByText("As a command").count(), 0);
});

async function journal({ call }: Visit["service"]): Promise<Answer> {
  return await call("GET", `/admin/accounts/${account}/journal?limit=500`);
}

/** They need a changed file, a running request or rows, which these tests have. */
const elsewhere: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    ["topUpAccounts", "changePlans", "changeStates", "importAccountList"].map((id) => [
      id,
      "many-accounts.test.ts",
    ]),
  ),
  applyPlans: "configuration.test.ts",
  reloadConfiguration: "configuration.test.ts",
  draftPlan: "configuration.test.ts",
  draftModel: "configuration.test.ts",
  stopRequest: "running-requests.test.ts",
  sendEvents: "../release/events.test.ts",
};

test("every action with a form has its dialog here", async () => {
  const tested = new Set(dialogs.map(({ action }) => action.http));
  for (const { id, http, form } of [...operatorActions, ...portalActions])
    if (form !== undefined) assert.ok(tested.has(http) || id in elsewhere, http);
});
