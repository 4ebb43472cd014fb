/** Bad input in every form: its message stands at the field, and nothing typed is lost. */
import assert from "node:assert/strict";
import { browserTests, type Visit } from "../fixtures/browser.ts";
import {
  assertRefused,
  choose,
  dialogClosed,
  loaded,
  open,
  openMore,
  submit,
  typePayment,
} from "../fixtures/console.ts";
import { ask } from "../fixtures/http-stream.ts";

const test = browserTests();

const account = "formed";
const long = "x".repeat(300);

interface Refusal {
  /** Typed into the fields with these labels, in this order. */
  type: Readonly<Record<string, string>>;
  /** Label of the field that is refused, and what its message says. */
  at: string;
  says: RegExp;
  /** Response of the service; absent if the page refuses the value by itself. */
  status?: number;
}

interface Form {
  name: string;
  /** Path below /console of the page that has the form. */
  path: string;
  open(page: Visit["page"]): Promise<void>;
  /** Request that the form sends. */
  sends: string;
  hasPreview?: boolean;
  refusals: Refusal[];
}

const press = (name: string) => async (page: Visit["page"]) => {
  await page.getByRole("button", { name, exact: true }).click();
  await page.getByRole("dialog").waitFor();
};
const menu = (action: string) => (page: Visit["page"]) => choose(page, action);

const keySettings: Refusal[] = [
  { type: { Name: long }, at: "Name", says: /64 characters/, status: 400 },
  { type: { "Budget in credits": "a lot", Name: "thesis" }, at: "Budget in credits", says: /whole number/ },
  { type: { "Budget in credits": "500" }, at: "Budget period", says: /period|every/i, status: 400 },
  {
    type: { "Budget in credits": "", "Requests per minute": "0" },
    at: "Requests per minute",
    says: /1/,
    status: 400,
  },
  { type: { "Requests per minute": "1.5" }, at: "Requests per minute", says: /whole number/ },
  {
    type: { "Requests per minute": "", Models: "no such model!" },
    at: "Models",
    says: /model/i,
    status: 400,
  },
  {
    type: { Models: "*", "Expires at (UTC)": "2020-01-01T00:00" },
    at: "Expires at (UTC)",
    says: /expired already/,
    status: 400,
  },
];

const forms: Form[] = [
  {
    ...{
      name: "opening an account",
      path: "/accounts",
      open: press("Open an account"),
      sends: "POST /admin/accounts",
    },
    refusals: [
      { type: { Owner: "Jo", Note: "A note" }, at: "Account", says: /Account is missing/ },
      { type: { Account: "Not an id!" }, at: "Account", says: /lower-case|letters/i, status: 400 },
      { type: { Account: account }, at: "Account", says: /exists already\. Nothing/ },
      { type: { Account: "fine", Owner: long }, at: "Owner", says: /long|200/i, status: 400 },
      { type: { Owner: "Jo", "E-mail": "nobody" }, at: "E-mail", says: /e-?mail/i, status: 400 },
      {
        type: { "E-mail": "", "External id": "crm-formed" },
        at: "External id",
        says: /crm-formed/,
        status: 409,
      },
    ],
  },
  {
    ...{
      name: "a top-up",
      path: `/accounts/${account}`,
      open: press("Top up"),
      sends: `POST /admin/accounts/${account}/topups`,
    },
    refusals: [
      {
        type: { "Payment id": "invoice <i>1</i>" },
        at: "Credits",
        says: /Credits is missing|Credits are missing/,
      },
      { type: { Credits: "0" }, at: "Credits", says: /at least 1/ },
      { type: { Credits: "-5" }, at: "Credits", says: /at least 1/ },
      { type: { Credits: "12.5" }, at: "Credits", says: /whole number/ },
      { type: { Credits: "999999999999999" }, at: "Credits", says: /\d/, status: 400 },
      { type: { Credits: "5", "Payment id": "pay-other" }, at: "Payment id", says: /pay-other/, status: 409 },
      { type: { "Payment id": "" }, at: "Payment id", says: /Payment id is missing/ },
    ],
  },
  {
    ...{
      name: "an adjustment",
      path: `/accounts/${account}`,
      open: menu("Adjust credits"),
      hasPreview: true,
    },
    sends: `POST /admin/accounts/${account}/adjustments`,
    refusals: [
      { type: { Credits: "10" }, at: "Reason", says: /Reason is missing/ },
      { type: { Reason: "A correction", Credits: "" }, at: "Credits", says: /missing/ },
      { type: { Credits: "0" }, at: "Credits", says: /0|not change/, status: 400 },
      { type: { Credits: "10", Reason: long }, at: "Reason", says: /long|200/i, status: 400 },
    ],
  },
  {
    ...{ name: "a refund", path: `/accounts/${account}`, hasPreview: true },
    async open(page) {
      await choose(page, "Refund a payment");
      await typePayment(page);
    },
    sends: `POST /admin/accounts/${account}/refunds`,
    refusals: [
      { type: { Credits: "-200", "Payment id": "pay-mine" }, at: "Credits", says: /at least 1/ },
      { type: { Credits: "200000" }, at: "Credits", says: /300/, status: 409 },
      { type: { Credits: "5", "Payment id": "" }, at: "Payment id", says: /missing/ },
      { type: { "Payment id": "pay-other" }, at: "Payment id", says: /pay-other/, status: 404 },
    ],
  },
  {
    ...{ name: "the contact", path: `/accounts/${account}`, open: menu("Edit the contact") },
    sends: `PATCH /admin/accounts/${account}/contact`,
    refusals: [
      { type: { Owner: long, Note: "kept" }, at: "Owner", says: /long|200/i, status: 400 },
      { type: { Owner: "Jo", "E-mail": "a@b@c" }, at: "E-mail", says: /e-?mail/i, status: 400 },
      {
        type: { "E-mail": "", "External id": "crm-other" },
        at: "External id",
        says: /crm-other/,
        status: 409,
      },
    ],
  },
  {
    ...{ name: "a new key", path: `/accounts/${account}/keys` },
    async open(page) {
      await press("Create a key")(page);
      await openMore(page);
    },
    ...{ sends: `POST /admin/accounts/${account}/keys`, refusals: keySettings },
  },
  {
    ...{
      name: "the settings of a key",
      path: `/accounts/${account}/keys`,
      open: press("Edit the key first"),
    },
    ...{ sends: "PATCH /admin/keys/KEY", refusals: keySettings },
  },
];

let isPrepared = false;
async function prepare({ service }: Visit): Promise<string> {
  if (!isPrepared) {
    isPrepared = true;
    for (const id of [account, "other"]) {
      const contact = { external_id: `crm-${id}` };
      await service.call("POST", "/admin/accounts", { id, plan: "starter", ...contact });
      await service.call("POST", `/admin/accounts/${id}/keys`, { operation_id: `key-${id}`, name: "first" });
      const payment_id = id === account ? "pay-mine" : "pay-other";
      await service.call("POST", `/admin/accounts/${id}/topups`, { payment_id, credits: 300 });
    }
  }
  const { data } = await service.call("GET", `/admin/accounts/${account}/keys`);
  return String(Object(data)[0].id);
}

for (const { name, path, open: openForm, sends, hasPreview = false, refusals } of forms) {
  test(`bad input for ${name} is refused at its field`, async (visit) => {
    const { page, service, expects } = visit;
    const key = await prepare(visit);
    const before = await service.call("GET", `/admin/accounts/${account}/journal?limit=500`);
    await open(visit, path);
    await openForm(page);
    const dialog = page.getByRole("dialog");
    const typed: Record<string, string> = {};
    for (const { type, at, says, status } of refusals) {
      for (const [label, text] of Object.entries(type)) {
        await dialog.getByLabel(label, { exact: false }).fill(text);
        typed[label] = text;
      }
      if (status !== undefined) {
        expects(`${status} ${sends.replace("KEY", key)}`);
        if (hasPreview) {
          await submit(page);
          await dialog.locator(".preview").waitFor();
        }
      }
      await submit(page);
      await assertRefused(dialog.getByLabel(at), says, typed);
    }
    assert.deepEqual(await service.call("GET", `/admin/accounts/${account}/journal?limit=500`), before);
  });
}

test("a period that ends before it begins is refused, and another one can be chosen", async (visit) => {
  const { page, expects } = visit;
  expects("400 GET /admin/usage/sums");
  await open(visit, "/usage?from=2026-03-10&to=2026-03-01");
  await page.getByRole("alert").filter({ hasText: /after/ }).first().waitFor();
  assert.equal(await page.getByLabel("From").inputValue(), "2026-03-10");
  await page.getByRole("button", { name: "7 days" }).click();
  await page.getByRole("alert").filter({ hasText: /after/ }).first().waitFor({ state: "detached" });
});

test("days in the address that do not exist are ignored", async (visit) => {
  const { page } = visit;
  await open(visit, "/usage?from=soon&to=2026-02-31x&by=nothing");
  assert.match(await page.getByLabel("From").inputValue(), /^\d{4}-\d{2}-\d{2}$/);
  await page.getByRole("button", { name: "30 days", pressed: true }).waitFor();
});

test("filters of receipts that contradict each other stay in their fields", async (visit) => {
  const { page, expects } = visit;
  await prepare(visit);
  expects("400 GET /admin/usage");
  await open(visit, `/accounts/${account}/receipts?from=2026-03-10&to=2026-03-01`);
  await page.getByLabel("Model").fill("<b>no model</b>");
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await page
    .getByRole("alert")
    .filter({ hasText: /after from|before/ })
    .first()
    .waitFor();
  assert.equal(await page.getByLabel("From").inputValue(), "2026-03-10");
  assert.equal(await page.getByLabel("Model").inputValue(), "<b>no model</b>");
});

test("names, notes, reasons and ids that are HTML are text on every page", async (visit) => {
  const { page, service } = visit;
  const html = `<img src=x onerror="document.title='broken'"><b>x</b>&amp;`;
  await open(visit, "/accounts");
  await page.getByRole("button", { name: "Open an account" }).click();
  const dialog = page.getByRole("dialog");
  const fill = async (texts: Record<string, string>) => {
    await dialog.waitFor();
    for (const [label, text] of Object.entries(texts)) await dialog.getByLabel(label).fill(text);
  };
  await fill({ Account: "html", Owner: html, Note: html, "External id": html });
  await submit(page);
  await page.getByRole("heading", { name: "html", exact: true }).waitFor();
  await page.getByRole("button", { name: "Top up" }).click();
  await fill({ Credits: "9", "Payment id": html });
  await submit(page);
  await dialogClosed(page);
  await choose(page, "Adjust credits");
  await fill({ Credits: "3", Reason: html });
  await submit(page);
  await dialog.locator(".preview").waitFor();
  await submit(page);
  await dialogClosed(page);
  await choose(page, "Refund a payment");
  await dialog.getByText(`${html}: 9 credits`).waitFor({ state: "attached" });
  await typePayment(page);
  await fill({ "Payment id": html, Credits: "1" });
  await submit(page);
  await dialog.getByText(`1 credits of ${html} are taken back`).waitFor();
  await submit(page);
  await page.getByRole("button", { name: "Done" }).click();
  const key = await service.call("POST", "/admin/accounts/html/keys", { operation_id: html, name: html });
  const content = "Hi";
  const answer = await ask({ url: service.apiUrl, key: String(key.key), content, max_tokens: 1, user: html });
  assert.equal(answer.status, 200, await answer.text());
  const assertText = async (path: string) => {
    const found: number = await page.evaluate(
      "document.querySelectorAll('img, b:not(.bar b)').length + (document.title === 'broken' ? 1 : 0)",
    );
    assert.equal(found, 0, `${path} has elements of the text`);
  };
  // The pages that show one of the texts.
  const shows = ["/accounts", "/accounts/html", "/accounts/html/keys", "/accounts/html/journal"];
  const others = [
    "",
    "/usage?by=key",
    "/usage?by=account",
    "/accounts/html/usage?by=key",
    "/accounts/html/receipts",
  ];
  const asked = [`/accounts?search=${encodeURIComponent(html)}`, `/accounts/${encodeURIComponent(html)}`];
  visit.expects(/^40[04] GET \/admin\/accounts\//);
  for (const path of [...shows, ...others, ...asked]) {
    await page.goto(`${service.url}/console${path}`);
    await loaded(page);
    if (shows.includes(path)) await page.locator("main").getByText(html).first().waitFor();
    await assertText(path);
  }
  await page.goto(`${service.url}/console/accounts/html/keys`);
  for (const action of ["Edit", "Rotate", "Revoke"]) {
    await page.getByRole("button", { name: `${action} the key ${html}` }).click();
    await dialog.getByRole("heading", { name: html }).waitFor();
    await assertText(`the form ${action}`);
    await page.getByRole("button", { name: "Cancel" }).click();
  }
});
