/** What an operator changes about an account: credits, plan, state, end date and contact. */
import assert from "node:assert/strict";
import { browserTests, type ConsoleService } from "../fixtures/browser.ts";
import {
  assertAccessible,
  assertRefused,
  choose,
  confirmed,
  dialogClosed,
  endSession,
  enterToken,
  open,
  submit,
  twoPlans,
  typePayment,
} from "../fixtures/console.ts";
import { ask } from "../fixtures/http-stream.ts";
import { ofRelease } from "../fixtures/thorough.ts";

const test = browserTests(twoPlans);
const releaseTest = ofRelease(test);

/** Opens an account on the plan "student". Returns a key of it. */
async function openAccount(service: ConsoleService, id: string): Promise<string> {
  await service.call("POST", "/admin/accounts", { id, plan: "student" });
  const { key } = await service.call("POST", `/admin/accounts/${id}/keys`, { operation_id: `first-${id}` });
  assert.ok(typeof key === "string");
  return key;
}

async function journal(service: ConsoleService, id: string, kind: string): Promise<object[]> {
  const { data } = await service.call("GET", `/admin/accounts/${id}/journal?limit=500`);
  assert.ok(Array.isArray(data));
  return data.filter((entry) => entry.kind === kind);
}

async function additional(service: ConsoleService, id: string): Promise<unknown> {
  const { balances } = await service.call("GET", `/admin/accounts/${id}/balance`);
  return Object(balances).additional.credits;
}

/** Sends a request with a key. Returns its status. */
async function askStatus(service: ConsoleService, key: string): Promise<number> {
  const response = await ask({ url: service.apiUrl, key, model: "tutor", content: "Hi", max_tokens: 1 });
  await response.text();
  return response.status;
}

releaseTest("adjusts credits after a preview, with a reason in the journal", async (visit) => {
  const { page, service } = visit;
  await openAccount(service, "adjusted");
  const promotion = { operation_id: "welcome", credits: 300, reason: "welcome" };
  await service.call("POST", "/admin/accounts/adjusted/adjustments", promotion);
  await open(visit, "/accounts/adjusted");
  await page.getByText("300", { exact: true }).waitFor();
  await choose(page, "Adjust credits");
  await page.getByRole("dialog").getByLabel("Credits").fill("-120");
  await page.getByRole("dialog").getByLabel("Reason").fill("Counted twice <b>by us</b>");
  await submit(page);
  await page.getByText("Additional credits change from 300 to 180").waitFor();
  assert.deepEqual(await journal(service, "adjusted", "adjust"), []);
  await page.getByRole("button", { name: "Adjust the credits" }).dblclick();
  await dialogClosed(page);
  await confirmed(page, "120 promotional credits taken from adjusted.");
  // The page behind the form has the new balance, without a reload.
  await page.getByText("180", { exact: true }).waitFor();
  const entries = await journal(service, "adjusted", "adjust");
  assert.equal(entries.length, 1);
  assert.match(JSON.stringify(entries), /Counted twice <b>by us<\/b>/);
  await page.getByRole("link", { name: "Journal" }).click();
  await page.getByText("Counted twice <b>by us</b>").waitFor();
});

test("refunds a payment as far as its credits are left, once", async (visit) => {
  const { page, service } = visit;
  const key = await openAccount(service, "refunded");
  await service.call("POST", "/admin/accounts/refunded/topups", { payment_id: "invoice-9", credits: 400 });
  // The plan pays for 550 of them.
  const request = { url: service.apiUrl, key, model: "tutor", content: "An endless story, please." };
  assert.equal((await (await ask({ ...request, max_tokens: 700 })).text()).length > 0, true);
  const left = Number(await additional(service, "refunded"));
  assert.ok(left > 0 && left < 400, `${left} credits are left`);
  await open(visit, "/accounts/refunded");
  await choose(page, "Refund a payment");
  await typePayment(page);
  await page.getByRole("dialog").getByLabel("Payment id").fill("invoice-9");
  const credits = page.getByRole("dialog").getByLabel("Credits");
  await credits.fill("400");
  await page.getByRole("dialog").getByLabel("Reason").fill("not used");
  await submit(page);
  await assertRefused(credits, new RegExp(`enter at most ${left}\\.$`), {
    Credits: "400",
    Reason: "not used",
  });
  assert.deepEqual(await journal(service, "refunded", "refund"), []);
  await credits.fill(String(left));
  await submit(page);
  const preview = page.locator(".preview");
  await preview.getByText(`from ${left} to 0`).first().waitFor();
  assert.match(await preview.innerText(), new RegExp(`Additional credits\\s+from ${left} to 0\\s`));
  await page.getByRole("button", { name: "Take the credits back" }).dblclick();
  await page.getByText(`${left} credits refunded from refunded.`).waitFor();
  await dialogClosed(page);
  const entries = await journal(service, "refunded", "refund");
  assert.equal(entries.length, 1);
  assert.equal(Object(entries[0]).after.reason, "not used");
  assert.equal(await additional(service, "refunded"), 0);
});

releaseTest("offers the payments with what was refunded, and takes back the rest of one", async (visit) => {
  const { page, service } = visit;
  await openAccount(service, "paid");
  for (const [payment_id, credits] of [
    ["invoice-1", 100],
    ["invoice-2", 400],
    ["invoice-3", 50],
  ] as const) {
    await service.call("POST", "/admin/accounts/paid/topups", { payment_id, credits });
  }
  for (const [payment_id, credits] of [
    ["invoice-1", 100],
    ["invoice-2", 150],
  ] as const) {
    const refund = { refund_id: `of-${payment_id}`, payment_id, credits };
    await service.call("POST", "/admin/accounts/paid/refunds", refund);
  }
  await open(visit, "/accounts/paid");
  await choose(page, "Refund a payment");
  const dialog = page.getByRole("dialog");
  const payment = dialog.getByLabel("Payment", { exact: true });
  const today = new Date().toISOString().slice(0, 10);
  assert.deepEqual(await payment.locator("option").allTextContents(), [
    "Choose a payment",
    `invoice-3: 50 credits, ${today}`,
    `invoice-2: 400 credits, ${today}, 150 refunded`,
    "Another payment, by its id",
  ]);
  await assertAccessible(page);
  assert.equal(await dialog.getByLabel("Payment id").count(), 0);
  await submit(page);
  await assertRefused(payment, /Payment is missing/, {});
  await payment.selectOption("id:invoice-2");
  // The rest of the payment is proposed. A number that was typed stays.
  const credits = dialog.getByLabel("Credits");
  assert.equal(await credits.inputValue(), "250");
  await payment.selectOption("id:invoice-3");
  assert.equal(await credits.inputValue(), "50");
  await credits.fill("20");
  await payment.selectOption("id:invoice-2");
  assert.equal(await credits.inputValue(), "20");
  await credits.fill("");
  await payment.selectOption("typed");
  await payment.selectOption("id:invoice-2");
  assert.equal(await credits.inputValue(), "250");
  await dialog.getByLabel("Reason").fill("half was not used");
  await submit(page);
  await dialog.locator(".preview").getByText("from 250 to 0").waitFor();
  await submit(page);
  await page.getByText("250 credits refunded from paid.").waitFor();
  assert.equal(await additional(service, "paid"), 50);
});

test("a refund stays that of its payment, even if another one ends it meanwhile", async (visit) => {
  const { page, service, expects } = visit;
  await openAccount(service, "raced");
  for (const payment_id of ["raced-1", "raced-2"]) {
    await service.call("POST", "/admin/accounts/raced/topups", { payment_id, credits: 40 });
  }
  await open(visit, "/accounts/raced");
  await choose(page, "Refund a payment");
  const dialog = page.getByRole("dialog", { name: "Refund a payment" });
  const payment = dialog.getByLabel("Payment", { exact: true });
  await payment.selectOption("typed");
  await dialog.getByLabel("Payment id").fill("raced-2");
  await payment.selectOption("id:raced-1");
  await dialog.getByLabel("Reason").fill("a race");
  await submit(page);
  await dialog.locator(".preview").getByText("from 40 to 0").first().waitFor();
  const other = { refund_id: "raced-other", payment_id: "raced-1", credits: 40 };
  await service.call("POST", "/admin/accounts/raced/refunds", other);
  expects("401 GET /admin/accounts/raced/live");
  await endSession(visit);
  await page.getByRole("heading", { name: "Sign in again" }).waitFor();
  // The list of payments is loaded again after the sign-in, without this payment.
  const reloaded = page.waitForResponse(/\/admin\/accounts\/raced\/payments/);
  await enterToken({ page, service });
  await reloaded;
  await page.getByRole("heading", { name: "Sign in again" }).waitFor({ state: "detached" });
  expects("409 POST /admin/accounts/raced/refunds");
  await submit(page);
  await assertRefused(dialog.getByLabel("Credits"), /refunded/, { Payment: "id:raced-1", Credits: "40" });
  assert.equal((await journal(service, "raced", "refund")).length, 1);
  assert.equal(await additional(service, "raced"), 40);
});

releaseTest(
  "filters the journal by kind, keeps the choice in the path, and reads newest first",
  async (visit) => {
    const { page, service } = visit;
    const key = await openAccount(service, "listed");
    await service.call("POST", "/admin/accounts/listed/topups", { payment_id: "listed-1", credits: 30 });
    const correction = { operation_id: "a1", credits: 5, reason: "why" };
    await service.call("POST", "/admin/accounts/listed/adjustments", correction);
    assert.equal(await askStatus(service, key), 200);
    await open(visit, "/accounts/listed/journal");
    const verbs = / (gave|added|made|refilled|opened|cost) /;
    const told = async () => {
      await page.locator("[aria-busy=true]").waitFor({ state: "detached" });
      const texts = await page.locator(".line p").allTextContents();
      return texts.map((text) => verbs.exec(text)?.[1]);
    };
    const charge = page.locator(".line p", { hasText: /Request .* cost listed/ });
    assert.deepEqual(await told(), ["gave", "added", "made", "refilled", "refilled", "opened"]);
    const show = page.getByLabel("Show");
    await show.selectOption("all");
    await page.waitForURL(/kind=all/);
    await charge.waitFor();
    assert.deepEqual(await told(), ["cost", "gave", "added", "made", "refilled", "refilled", "opened"]);
    await page.getByLabel("Order").selectOption("oldest");
    await page.locator(".line p").first().getByText("opened account").waitFor();
    await page.reload();
    await charge.waitFor();
    assert.deepEqual(await told(), ["opened", "refilled", "refilled", "made", "added", "gave", "cost"]);
    await show.selectOption("requests");
    await page.locator(".line p", { hasText: "listed-1" }).waitFor({ state: "detached" });
    assert.deepEqual(await told(), ["cost"]);
    await show.selectOption("states");
    await page.getByText("The journal has no entries of this kind.").waitFor();
    await assertAccessible(page);
    await page.getByRole("link", { name: "Show all entries" }).click();
    await charge.waitFor();
  },
);

test("a preview of other values than those in the form is not shown", async (visit) => {
  const { page, service } = visit;
  await openAccount(service, "hurried");
  await open(visit, "/accounts/hurried");
  await choose(page, "Adjust credits");
  const credits = page.getByRole("dialog").getByLabel("Credits");
  await credits.fill("5");
  await page.getByRole("dialog").getByLabel("Reason").fill("A correction");
  const { promise: mayAnswer, resolve: answer } = Promise.withResolvers<void>();
  const asked = page.waitForRequest("**/admin/accounts/hurried/balance");
  await page.route("**/admin/accounts/hurried/balance", async (route) => {
    await mayAnswer;
    await route.continue();
  });
  await submit(page);
  await asked;
  await credits.fill("5000");
  const answered = page.waitForResponse("**/admin/accounts/hurried/balance");
  answer();
  await (await answered).finished();
  await page.getByRole("dialog").getByRole("button", { name: "Preview" }).click();
  await page.getByText("Additional credits change from 0 to 5,000").waitFor();
  assert.equal(await page.getByText(/from 0 to 5 \(/).count(), 0);
  await submit(page);
  await dialogClosed(page);
  assert.equal(await additional(service, "hurried"), 5000);
});

test("changes a plan at the next refresh, shows it, and cancels it", async (visit) => {
  const { page, service } = visit;
  await openAccount(service, "growing");
  await open(visit, "/accounts/growing");
  await choose(page, "Change the plan");
  await page.getByRole("dialog").getByLabel("New plan").selectOption("team");
  await page
    .getByRole("dialog")
    .getByLabel("When")
    .selectOption({ label: "At the next refresh of the base credits" });
  await submit(page);
  await page.getByText("Nothing has changed yet.").waitFor();
  const base = page.getByRole("dialog").getByRole("row").filter({ hasText: "base" });
  assert.match(await base.innerText(), /500 of 500\s+20,000 of 20,000/);
  await submit(page);
  await dialogClosed(page);
  const scheduled = page
    .locator("dt", { hasText: "Plan from the next refresh" })
    .locator("xpath=following-sibling::dd[1]");
  await scheduled.getByText("team").waitFor();
  const during = await service.call("GET", "/admin/accounts/growing");
  assert.equal(during.plan, "student");
  assert.equal(during.next_plan, "team");
  await choose(page, "Change the plan");
  await page.getByRole("dialog").getByText(/team/).first().waitFor();
  await page.getByRole("dialog").getByLabel("New plan").selectOption("student");
  await submit(page);
  await page.getByText("Nothing has changed yet.").waitFor();
  await submit(page);
  await dialogClosed(page);
  await scheduled.waitFor({ state: "detached" });
  assert.equal((await service.call("GET", "/admin/accounts/growing")).next_plan, null);
});

releaseTest("shows what the change to a smaller plan takes, and changes the plan now", async (visit) => {
  const { page, service } = visit;
  const key = await openAccount(service, "shrinking");
  await service.call("PATCH", "/admin/accounts/shrinking", { operation_id: "up", plan: "team", at: "now" });
  assert.equal(await askStatus(service, key), 200);
  await open(visit, "/accounts/shrinking");
  await choose(page, "Change the plan");
  await page.getByRole("dialog").getByLabel("New plan").selectOption("student");
  await page.getByRole("dialog").getByLabel("When").selectOption("now");
  await submit(page);
  await page.getByText("Nothing has changed yet.").waitFor();
  const base = page.getByRole("dialog").getByRole("row").filter({ hasText: "base" });
  // What was spent of the larger plan counts in the smaller one.
  const [, left] = /20,000\s+(\d+) of 500/.exec(await base.innerText()) ?? [];
  assert.ok(Number(left) > 0 && Number(left) < 500, await base.innerText());
  await submit(page);
  await dialogClosed(page);
  await confirmed(page, /is on plan student\./);
  await page.getByText(`${left} of 500`).waitFor();
});

releaseTest("closes an account only after its preview, for good", async (visit) => {
  const { page, service } = visit;
  const key = await openAccount(service, "closing");
  await service.call("POST", "/admin/accounts/closing/topups", { payment_id: "pay-closing", credits: 70 });
  assert.equal(await askStatus(service, key), 200);
  await open(visit, "/accounts/closing");
  await choose(page, "Close for good");
  await submit(page);
  const dialog = page.getByRole("dialog");
  await dialog
    .getByText(/base and 50 overage credits lapse, 70 additional credits stay\. 1 key can/)
    .waitFor();
  assert.equal(await askStatus(service, key), 200);
  await submit(page);
  await dialogClosed(page);
  await page.getByText(/This account is closed/).waitFor();
  assert.equal(await askStatus(service, key), 403);
  const account = await service.call("GET", "/admin/accounts/closing");
  assert.equal(account.state, "closed");
  assert.equal(await additional(service, "closing"), 70);
  // What a closed account does not allow is not offered.
  await page.getByText("Change", { exact: true }).click();
  await page.getByRole("button", { name: "Refund a payment" }).waitFor();
  for (const gone of ["Suspend", "Resume", "Change the plan", "Close for good", "Set the end date"]) {
    assert.equal(await page.getByRole("button", { name: gone }).count(), 0, gone);
  }
});

releaseTest("sets, moves and removes an end date, and warns of one that has passed", async (visit) => {
  const { page, service } = visit;
  await openAccount(service, "ending");
  await open(visit, "/accounts/ending");
  const set = async (time: string) => {
    await choose(page, "Set the end date");
    await page.getByRole("dialog").getByLabel("Closes at (UTC)").fill(time);
    await submit(page);
  };
  const endsAt = async () => (await service.call("GET", "/admin/accounts/ending")).ends_at;
  await set("2099-03-31T18:00");
  await page.getByText("The account closes at 2099-03-31 18:00 UTC.").waitFor();
  assert.equal(await endsAt(), null);
  await submit(page);
  await dialogClosed(page);
  assert.equal(await endsAt(), "2099-03-31T18:00:00.000Z");
  await page.getByRole("term").filter({ hasText: "Closes" }).waitFor();
  await page.locator("dd time[datetime^='2099-03-31']").waitFor();
  await choose(page, "Set the end date");
  assert.equal(await page.getByRole("dialog").getByLabel("Closes at (UTC)").inputValue(), "2099-03-31T18:00");
  await page.getByRole("button", { name: "Cancel" }).click();
  await dialogClosed(page);
  await set("");
  await page.getByText("The account has no end date any more.").waitFor();
  await submit(page);
  await dialogClosed(page);
  assert.equal(await endsAt(), null);
  await set("2020-01-01T00:00");
  await page.getByText("This time has passed: the account closes now, for good.").waitFor();
  assert.equal((await service.call("GET", "/admin/accounts/ending")).state, "active");
  await page.getByRole("button", { name: "Cancel" }).click();
  await dialogClosed(page);
  assert.equal((await service.call("GET", "/admin/accounts/ending")).state, "active");
});
