/** The portal as the holder of a key uses it: balance, requests, usage, keys, first request. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { exactCredits } from "../../src/units.ts";
import { browserTests, type ConsoleService } from "../fixtures/browser.ts";
import { assertAccessible, dialogClosed, signOut } from "../fixtures/console.ts";
import { askApi, keyOf, openPortal } from "../fixtures/portal-pages.ts";
import { ofRelease } from "../fixtures/thorough.ts";

const plans = `plans:
  starter: { base: { credits: 1000, every: P1D }, overage: { credits: 1000, every: P1M } }
  prepaid: { base: { credits: 0, every: P1D }, overage: { credits: 0, every: P1D } }
  student: { base: { credits: 100, every: P1D }, overage: { credits: 0, every: P1D }, limits: { requests_per_minute: 30, tokens_per_minute: 5000, concurrent: 2 } }
  tiny: { base: { credits: 2, every: P1D }, overage: { credits: 0, every: P1D } }
  late: { base: { credits: 0, every: P1D }, overage: { credits: 70, every: P1D } }
`;

const test = browserTests({ pages: "portal", configuration: plans });
const releaseTest = ofRelease(test);
const model = "smollm2-135m-instruct";
const hostile = "<img src=x onerror=alert(1)>";

/** Opens an account. Returns the secret of a key of it. */
async function openAccount(service: ConsoleService, id: string, plan = "starter"): Promise<string> {
  await service.call("POST", "/admin/accounts", { id, plan });
  return (await keyOf(service, id, { name: "only", portal: "account" })).secret;
}

async function receiptOf({ call }: ConsoleService, key: string) {
  const { data } = await call("GET", `/admin/usage?key=${key}`);
  return Object(data)[0];
}

test("signs in with a key only, says where keys come from, and signs out", async ({
  page,
  service,
  expects,
}) => {
  expects("401 POST /api/session");
  await page.goto(service.portalUrl);
  await page.getByText("You get one from the operator").waitFor();
  // The font is asked for once, before the style is read.
  await page.evaluate("document.fonts.ready");
  const fonts = "[...document.fonts].filter(({ status }) => status === 'loaded').map(({ family }) => family)";
  assert.deepEqual(await page.evaluate(fonts), ["Inter"]);
  const loads = "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('.woff2'))";
  assert.deepEqual(await page.evaluate(`${loads}.map(({ initiatorType }) => initiatorType)`), ["link"]);
  const field = page.getByLabel("API key");
  assert.equal(await field.getAttribute("type"), "password");
  await field.fill("sk-wrong");
  await page.keyboard.press("Enter");
  await page.locator("[aria-invalid=true]").waitFor();
  assert.equal(await field.inputValue(), "sk-wrong");
  await field.fill(service.key);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Balance" }).waitFor();
  await page.reload();
  await page.getByRole("heading", { name: "Balance" }).waitFor();
  await signOut(page);
  await field.waitFor();
});

test("shows the balance live, and the latest requests with their exact cost", async (visit) => {
  const { page, service } = visit;
  const { id, secret } = await keyOf(service, "default", { name: hostile, portal: "own" });
  await openPortal(visit, "/", secret);
  await page.getByText("No request has finished yet").waitFor();
  await page.getByText("live", { exact: true }).waitFor();
  assert.equal(await askApi(service, secret), 200);
  // Without a reload, though the request lasts a moment and changes no whole credit.
  const row = page.getByRole("region", { name: "Latest finished requests" }).getByRole("row").nth(1);
  await row.getByText(hostile).waitFor();
  const { cost_micro } = await receiptOf(service, id);
  await row.getByTitle(`${cost_micro / 1_000_000} credits`, { exact: true }).waitFor();
});

test("shows what is left of each limit, what was refused, and what to do", async (visit) => {
  const { page, service } = visit;
  await service.call("POST", "/admin/accounts", { id: "student-1", plan: "student" });
  const settings = { name: "limited", portal: "own", requests_per_minute: 1 };
  const { secret } = await keyOf(service, "student-1", settings);
  await openPortal(visit, "/", secret);
  const left = (of: string) => page.locator(".bucket").filter({ hasText: of });
  await left("of this key").getByText("1 of 1 left").waitFor();
  await left("Requests at once").getByText("2 of 2 left").waitFor();
  await left("Tokens per minute").getByText("of the plan, for all keys together").waitFor();
  assert.equal(await askApi(service, secret), 200);
  await left("of this key").getByText("0 of 1 left").waitFor();
  await left("of this key")
    .getByText(/full again in \d+ seconds/)
    .waitFor();
  assert.equal(await askApi(service, secret), 429);
  await page.getByRole("link", { name: "Refused requests" }).click();
  const row = page.getByRole("region", { name: "Refused requests" }).getByRole("row").nth(1);
  await row.getByText("limit", { exact: true }).waitFor();
  await row.getByText(/in a minute than the plan or the key allows. Send fewer/).waitFor();
  await row.getByText("limited", { exact: true }).waitFor();
  await assertAccessible(page);
  await page.getByRole("link", { name: "Finished" }).click();
  await page.getByRole("button", { name: /^Why/ }).waitFor();
  await page.goto(`${service.portalUrl}/keys`);
  await page
    .getByText("for all keys of the account together: 30 requests/min, 5,000 tokens/min, 2 at once.")
    .waitFor();
});

test("a request between the list and the first event of the stream is not missed", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "default", { name: "between" });
  // Requests that the page sends by itself do not prolong the session.
  const prolonging: string[] = [];
  page.on("request", (request) => {
    const isFollowed = /\/api\/(?:requests|account)/.test(request.url());
    if (isFollowed && request.headers()["x-inkwell-unattended"] !== "1") prolonging.push(request.url());
  });
  const { promise: asked, resolve: release } = Promise.withResolvers<void>();
  await page.route("**/api/live", async (route) => {
    await asked;
    await route.continue();
  });
  await openPortal(visit, "/start", secret);
  await page.goto(service.portalUrl);
  await page.getByText("No request has finished yet").waitFor();
  assert.equal(await askApi(service, secret), 200);
  prolonging.length = 0;
  release();
  await page.getByRole("region", { name: "Latest finished requests" }).waitFor();
  assert.deepEqual(prolonging, []);
});

test("explains the cost of a request: tokens times price, and the bucket that paid", async (visit) => {
  const { page, service } = visit;
  const { id, secret } = await keyOf(service, "default", { name: "explained", portal: "account" });
  assert.equal(await askApi(service, secret), 200);
  await openPortal(visit, "/requests", secret);
  await page.getByLabel("Key").selectOption({ label: "explained" });
  await page.getByLabel("Model").selectOption(model);
  const rows = page.getByRole("region", { name: "Finished requests" }).getByRole("row");
  await rows.nth(2).waitFor({ state: "detached" });
  await rows.nth(1).getByRole("button", { name: /^Why/ }).click();
  const receipt = await receiptOf(service, id);
  const dialog = page.getByRole("dialog");
  const text = await dialog.innerText();
  for (const shown of [
    receipt.prompt_tokens - receipt.cached_tokens,
    receipt.completion_tokens,
    receipt.price_prompt.toLocaleString("en-US"),
    receipt.price_completion.toLocaleString("en-US"),
    receipt.cost_micro / 1_000_000,
    "Base credits",
  ]) {
    assert.ok(text.includes(String(shown)), `${shown} in ${text}`);
  }
  await dialog.getByRole("button", { name: receipt.request_id }).waitFor();
  assert.equal(receipt.base_micro, receipt.cost_micro);
  await page.keyboard.press("Escape");
  await dialogClosed(page);
  await page.getByRole("button", { name: "30 days", pressed: true }).waitFor();
  await page.getByRole("button", { name: "Last month" }).click();
  await page.getByText("No request has finished in this selection").waitFor();
  await page.getByRole("link", { name: "Show all requests" }).click();
  await page.getByRole("button", { name: "All", exact: true, pressed: true }).waitFor();
  await rows.nth(1).waitFor();
});

test("says what the credits are worth, when more come, and what models cost", async (visit) => {
  const { page, service } = visit;
  await service.call("POST", "/admin/accounts", { id: "worth", plan: "starter" });
  const { secret } = await keyOf(service, "worth", { portal: "account" });
  await openPortal(visit, "/", secret);
  const figure = page.locator(".figure").filter({ hasText: "Credits left" });
  assert.equal(await figure.locator("strong").innerText(), "2,000");
  // 100,000 credits per million tokens, and 0.75 words per token.
  await figure.getByText(`About 15,000 words of answers by ${model}`).waitFor();
  await figure.getByText(/^Base refills to 1,000 in \d+ (?:hours|minutes|seconds)/).waitFor();
  const month = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", month: "long" });
  const due = page.locator(".overage time").last();
  const at = Date.parse((await due.getAttribute("datetime")) ?? "");
  assert.equal(await due.innerText(), `on ${new Date(at).getUTCDate()} ${month.format(at)}`);
  await page.getByRole("link", { name: "Models" }).click();
  const row = page.getByRole("region", { name: "Models and their prices" }).getByRole("row").nth(1);
  assert.match(await row.innerText(), /20,000\s+20,000\s+100,000\s+8,192/);
  await assertAccessible(page);
});

releaseTest("gives a first request to copy, without the key", async (visit) => {
  const { page, service } = visit;
  await openPortal(visit, "/start");
  await page.getByRole("button", { name: "Copy the request with curl" }).click();
  const copied: string = await page.evaluate("navigator.clipboard.readText()");
  assert.ok(copied.includes(`${service.apiUrl}/v1/chat/completions`) && copied.includes(model), copied);
  assert.ok(!(await page.content()).includes(service.key));
});

releaseTest("says that the account is suspended or closes for as long as it is so", async (visit) => {
  const { page, service } = visit;
  const secret = await openAccount(service, "suspended");
  const change = (to: object) =>
    service.call("POST", `/admin/accounts/suspended/${"state" in to ? "state" : "end"}`, {
      operation_id: crypto.randomUUID(),
      ...to,
    });
  await openPortal(visit, "/", secret);
  await page.getByText("No request has finished yet").waitFor();
  const notice = (text: string | RegExp) => page.locator(".notice").filter({ hasText: text });
  await change({ state: "suspended" });
  await notice("This account is suspended.").waitFor();
  assert.equal(await askApi(service, secret), 403);
  await page.getByRole("link", { name: "Keys" }).click();
  await page.getByText("The account is suspended.").waitFor();
  assert.equal(await page.getByRole("button", { name: "Create a key" }).count(), 0);
  await page.getByRole("link", { name: "Home" }).click();
  await notice("This account is suspended.").waitFor();
  await change({ state: "active" });
  await notice("This account is suspended.").waitFor({ state: "detached" });
  await page.getByRole("link", { name: "Keys" }).click();
  await page.getByRole("button", { name: "Create a key" }).waitFor();
  await page.getByRole("link", { name: "Home" }).click();
  await change({ ends_at: new Date(Date.now() + 86_400_000).toISOString() });
  await notice(/This account closes in 2[34] hours/).waitFor();
  await page
    .getByText(/ends without a refill/)
    .first()
    .waitFor();
  await change({ ends_at: null });
  await notice("This account closes").waitFor({ state: "detached" });
});

test("says that the credits are used up as soon as they are, and when they refill", async (visit) => {
  const { page, service } = visit;
  const secret = await openAccount(service, "empty", "tiny");
  await openPortal(visit, "/", secret);
  await page.getByText("live", { exact: true }).waitFor();
  assert.equal(await page.getByText("The credits are used up.").count(), 0);
  let status = 200;
  for (let asked = 0; asked < 20 && status === 200; asked += 1) status = await askApi(service, secret);
  const notice = page.locator(".notice").filter({ hasText: "The credits are used up." });
  await notice.getByText(/The base credits refill to/).waitFor();
  assert.equal(await askApi(service, secret), 402);
});

releaseTest("promises a refill only if one comes", async (visit) => {
  const { page, service } = visit;
  const secret = await openAccount(service, "bought", "prepaid");
  await openPortal(visit, "/", secret);
  const notice = page.locator(".notice").filter({ hasText: "The credits are used up." });
  await notice.getByText("They do not refill").waitFor();
  await page.getByText("Base: the plan grants none.").waitFor();
  assert.equal(await page.getByText(/refills? to/).count(), 0);
  const later = { operation_id: "up", plan: "late", at: "refresh" };
  await service.call("PATCH", "/admin/accounts/bought", later);
  await notice.getByText(/The overage credits refill to 70/).waitFor();
});

releaseTest("says that the cap of the key is reached, and when it refills", async (visit) => {
  const { page, service } = visit;
  const caps = (credits: number) => ({ spending_caps: [{ credits, every: "P1D" }] });
  const { id, secret } = await keyOf(service, "default", { name: "spent", ...caps(100) });
  for (let asked = 0; asked < 2; asked += 1) assert.equal(await askApi(service, secret), 200);
  const smaller = { operation_id: "smaller", ...caps(1) };
  await service.call("PATCH", `/admin/keys/${id}`, smaller);
  await openPortal(visit, "/", secret);
  const notice = page.locator(".notice").filter({ hasText: "The cap P1D of this key is reached." });
  await notice.getByText(/It refills/).waitFor();
  await page.getByRole("img", { name: "0 % of the cap day of this key are left" }).waitFor();
});

releaseTest("exports the usage that it shows, and of no other account", async (visit) => {
  const { page, service } = visit;
  const secret = await openAccount(service, "exporting");
  assert.equal(await askApi(service, secret), 200);
  await openPortal(visit, "/usage?by=key", secret);
  const saving = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export CSV" }).click();
  const csv = readFileSync(await (await saving).path(), "utf8");
  const { data } = await service.call("GET", "/admin/usage?account=exporting");
  const [receipt] = Object(data);
  const lines = csv.trim().split(/\r?\n/);
  assert.equal(lines.length, 2, csv);
  assert.ok(lines[1]?.split(",").includes(exactCredits(receipt.cost_micro)), csv);
});

test("the focus goes to the heading of the next page", async (visit) => {
  const { page } = visit;
  await openPortal(visit, "/");
  await page.getByRole("link", { name: "Usage" }).focus();
  await page.keyboard.press("Enter");
  await page.locator("h1:focus").getByText("Usage").waitFor();
  await page.getByText("The last 24 hours (UTC)").waitFor();
});

test("an address with two slashes at its beginning leads to no other host", async (visit) => {
  const { page, service } = visit;
  await openPortal(visit, "//usage?by=key");
  assert.equal(new URL(page.url()).pathname, "//usage");
  await page.getByRole("button", { name: "7 days" }).click();
  await page.waitForURL(`${service.portalUrl}/usage?by=key&*`);
});
