/** Moving between pages of the console: focus, links to what does not exist, and odd browsers. */
import assert from "node:assert/strict";
import type { Request } from "playwright-core";
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, dialogClosed, open, openMore, submit } from "../fixtures/console.ts";
import { some } from "../fixtures/thorough.ts";

const test = browserTests();

test("moves the focus to the heading of a page that opens, and not when a tab opens", async (visit) => {
  const { page } = visit;
  await open(visit, "/accounts");
  await page.getByRole("link", { name: "Plans", exact: true }).press("Enter");
  await page.locator("h1:focus", { hasText: /^Plans$/ }).waitFor();
  await page.goBack();
  await page.locator("h1:focus", { hasText: /^Accounts$/ }).waitFor();
  await page.getByRole("link", { name: "default", exact: true }).press("Enter");
  await page.locator("h1:focus", { hasText: /^default$/ }).waitFor();
  await page.getByRole("link", { name: "Journal" }).press("Enter");
  await page.getByRole("region", { name: /journal/i }).waitFor();
  await page.locator("a:focus", { hasText: /^Journal$/ }).waitFor();
});

test("a page that opens takes the focus before anything can be typed into it", async (visit) => {
  const { page } = visit;
  await open(visit, "/accounts");
  const focused: string = await page.evaluate(`(async () => {
    document.querySelector("nav a[href$=plans]").click();
    for (let turn = 0; turn < 100; turn += 1) await null;
    return document.activeElement.outerHTML;
  })()`);
  assert.match(focused, /^<h1.*>Plans</);
});

test("the page of a missing account says so, and leads to the search", async (visit) => {
  const { page, expects } = visit;
  expects("404 GET /admin/accounts/defalt");
  await open(visit, "/accounts/defalt");
  await page.getByRole("heading", { name: "This account does not exist" }).waitFor();
  assert.equal(await page.getByRole("navigation", { name: "Topics of the account" }).count(), 0);
  assert.equal(await page.getByRole("button", { name: "Try again" }).count(), 0);
  await assertAccessible(page);
  await page.getByRole("link", { name: "Search for “defalt”" }).click();
  await page.getByText("No account fits this search.").waitFor();
  assert.equal(await page.getByRole("searchbox").inputValue(), "defalt");
});

test("an address with an impossible account id leads to the same page", async (visit) => {
  const { page } = visit;
  visit.expects(/^40[04] GET/);
  await open(visit, "/accounts/Not%20an%20id%3Cb%3E");
  await page.getByRole("heading", { name: "This account does not exist" }).waitFor();
});

const forms = [
  ["Open an account", "/accounts", "Open an account"],
  ["Change the plan of default", "/accounts/default", "Change the plan"],
] as const;
for (const [name, path, press] of some(forms, 2)) {
  test(`"${name}" says that the plans cannot be loaded, and loads them again`, async (visit) => {
    const { page, expects } = visit;
    await open(visit, path);
    await page.route("**/admin/plans?*", (route) => route.abort("connectionrefused"));
    expects("failed GET /admin/plans");
    if (path !== "/accounts") await page.getByText("Change", { exact: true }).click();
    await page.getByRole("button", { name: press }).click();
    const dialog = page.getByRole("dialog", { name });
    await dialog.getByText("The service did not respond.").waitFor();
    assert.equal(await dialog.getByRole("combobox").count(), 0);
    await assertAccessible(page);
    await page.keyboard.press("Escape");
    await dialogClosed(page);
    if (path !== "/accounts") await page.getByText("Change", { exact: true }).click();
    await page.getByRole("button", { name: press }).click();
    await dialog.getByText("The service did not respond.").waitFor();
    await page.unroute("**/admin/plans?*");
    await dialog.getByRole("button", { name: "Try again" }).click();
    await dialog.getByLabel(/plan/i).waitFor();
  });
}

test("a refused field is named as on the page, not as in the API", async (visit) => {
  const { page, expects } = visit;
  await open(visit, "/accounts/default/keys");
  await page.getByRole("button", { name: "Create a key" }).click();
  await openMore(page);
  await page.getByLabel("Requests per minute").fill("2000000000");
  expects("400 POST /admin/accounts/default/keys");
  await submit(page);
  const alert = page.getByRole("dialog").getByRole("alert").filter({ hasText: /./ });
  await alert.waitFor();
  assert.match(await alert.innerText(), /^Requests per minute must be/);
});

test("finds the account of a secret, which is in no address, and says that one is mistyped", async (visit) => {
  const { page, service, expects } = visit;
  const made = await service.call("POST", "/admin/accounts/default/keys", {
    operation_id: "look-up",
    name: "lost laptop",
  });
  const secret = String(made.key);
  const urls: string[] = [];
  page.on("request", (request) => urls.push(request.url()));
  await open(visit, "/accounts");
  await page.keyboard.press("Control+k");
  const field = page.getByRole("dialog").getByRole("combobox");
  expects("400 POST /admin/keys/lookup");
  await field.fill(`${secret}x`);
  await page.getByText(/mistyped or incomplete/).waitFor();
  await assertAccessible(page);
  await field.fill(` ${secret} `);
  await page.getByRole("option", { name: /lost laptop/ }).click();
  await page.getByRole("heading", { name: "default", level: 1 }).waitFor();
  assert.ok(![...urls, page.url()].some((url) => url.includes(secret.slice(0, 20))));
});

test("searches while somebody types, without accents, and by the keyboard alone", async (visit) => {
  const { page, service } = visit;
  const account = { id: "zz-find", plan: "starter", owner: "Hans Müller", email: "hm@uni.example" };
  await service.call("POST", "/admin/accounts", account);
  await service.call("POST", "/admin/accounts/zz-find/topups", { payment_id: "MULLER-1", credits: 5 });
  await open(visit, "/accounts");
  await page.keyboard.press("/");
  const field = page.getByRole("dialog").getByRole("combobox");
  await page.keyboard.type("muller");
  const [first, second] = [0, 1].map((n) => page.getByRole("option").nth(n));
  await first?.getByText("Hans Müller zz-find · hm@uni.example").waitFor();
  await page.getByRole("group", { name: "Payments" }).getByText("MULLER-1").waitFor();
  await assertAccessible(page);
  for (const [key, option] of [
    ["ArrowDown", second],
    ["ArrowDown", first],
    ["ArrowUp", second],
  ] as const) {
    await field.press(key);
    assert.equal(await option?.getAttribute("aria-selected"), "true", key);
    assert.equal(await field.getAttribute("aria-activedescendant"), await option?.getAttribute("id"));
  }
  await field.press("ArrowUp");
  await field.press("Enter");
  await page.locator("h1:focus", { hasText: "Hans Müller" }).waitFor();
  assert.match(page.url(), /\/accounts\/zz-find$/);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("nothing like it");
  await page.getByRole("status").getByText("Nothing begins with this.").waitFor();
  await page.keyboard.press("Escape");
  await field.waitFor({ state: "detached" });
  // In a field, it is a character.
  await open(visit, "/accounts");
  await page.getByRole("searchbox").press("/");
  assert.equal(await page.getByRole("searchbox").inputValue(), "/");
});

test("an older answer never replaces a newer one, and Enter waits for the newest", async (visit) => {
  const { page } = visit;
  await open(visit, "/accounts");
  // Nothing responds to the first one.
  await page.route("**/admin/search?text=def", () => {});
  await page.keyboard.press("Control+k");
  const field = page.getByRole("dialog").getByRole("combobox");
  const isOld = (request: Request) => request.url().endsWith("text=def");
  const sent = page.waitForEvent("request", isOld);
  const givenUp = page.waitForEvent("requestfailed", isOld);
  await field.fill("def");
  await sent;
  await field.fill("heal");
  await givenUp;
  const options = page.getByRole("dialog").getByRole("option");
  await options.getByText("Health").waitFor();
  assert.equal(await options.count(), 1);
  await field.fill("default");
  await field.press("Enter");
  await page.getByRole("heading", { name: "default", level: 1 }).waitFor();
});
