/** Moving between pages of the console: focus, links to what does not exist, and odd browsers. */
import assert from "node:assert/strict";
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

test("finds the account of a secret, which is in no address, and keeps a wrong one", async (visit) => {
  const { page, service, expects } = visit;
  const made = await service.call("POST", "/admin/accounts/default/keys", {
    operation_id: "look-up",
    name: "lost laptop",
  });
  const secret = String(made.key);
  await open(visit, "/accounts");
  await page.getByRole("button", { name: "Find a key" }).click();
  const field = page.getByLabel("API key");
  assert.equal(await field.getAttribute("type"), "password");
  await field.fill(`${secret}x`);
  expects("400 POST /admin/keys/lookup");
  await submit(page);
  await page.getByText(/mistyped or incomplete/).waitFor();
  assert.equal(await field.inputValue(), `${secret}x`);
  await assertAccessible(page);
  await field.fill(` ${secret} `);
  await submit(page);
  await page.getByRole("heading", { name: "default", level: 1 }).waitFor();
  await page.getByText(/^It is the key key_\w+ of default\.$/).waitFor();
  await page.getByText("lost laptop").waitFor();
  assert.ok(!page.url().includes(secret), page.url());
});
