/** Keys in the portal: creating, changing, rotating and revoking them within the own rights. */
import assert from "node:assert/strict";
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, assertRefused, confirmed, openMore, submit } from "../fixtures/console.ts";
import { askApi, endPortalSession, keyOf, openPortal } from "../fixtures/portal-pages.ts";
import { ofRelease } from "../fixtures/thorough.ts";

const test = browserTests({ pages: "portal" });
const releaseTest = ofRelease(test);
const hostile = "<img src=x onerror=alert(1)>";

releaseTest(
  "creates a key within the limits of the own one, changes, rotates and revokes it",
  async (visit) => {
    const { page, service, expects } = visit;
    const settings = { name: "manager", portal: "account", requests_per_minute: 50 };
    const { secret } = await keyOf(service, "default", settings);
    await openPortal(visit, "/keys", secret);
    await page.getByRole("button", { name: "Create a key" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Name").fill("<b>lab</b>");
    await openMore(page);
    await dialog.getByText("At most 50, as your key allows").waitFor();
    await dialog.getByLabel("Requests per minute").fill("51");
    expects("400 POST /api/keys");
    await submit(page);
    await assertRefused(dialog.getByLabel("Requests per minute"), /at most 50/, { Name: "<b>lab</b>" });
    await dialog.getByLabel("Requests per minute").fill("");
    await submit(page);
    await dialog.getByRole("button", { name: "Copy the secret" }).click();
    await dialog.getByText("Copied.").waitFor();
    const made: string = await page.evaluate("navigator.clipboard.readText()");
    assert.equal(await askApi(service, made), 200);
    await dialog.getByRole("button", { name: "Done" }).click();
    // The new key has the limit of the key that made it.
    await page.getByRole("row").filter({ hasText: "<b>lab</b>" }).getByText("50 requests/min").waitFor();
    await page.getByRole("button", { name: "Edit the key <b>lab</b>" }).click();
    const edited = { Name: "lab", "Requests per minute": "51", "Expires at (UTC)": "2099-01-31T12:30" };
    for (const [label, text] of Object.entries(edited)) await dialog.getByLabel(label).fill(text);
    expects(/^400 PATCH \/api\/keys\/key/);
    await submit(page);
    await assertRefused(dialog.getByLabel("Requests per minute"), /at most 50/, edited);
    // No limit is more than the limit of the own key.
    await dialog.getByLabel("Requests per minute").fill("");
    await submit(page);
    await assertRefused(dialog.getByLabel("Requests per minute"), /at most 50/, { Name: "lab" });
    await dialog.getByLabel("Requests per minute").fill("20");
    await dialog.getByLabel("Budget in credits").fill("300");
    await submit(page);
    await assertRefused(dialog.getByLabel("Budget period"), /period|every/i, { "Budget in credits": "300" });
    await dialog.getByLabel("Budget period").selectOption("P1W");
    await submit(page);
    await confirmed(page, /is changed\. Its next request uses/);
    await page.getByRole("row").filter({ hasText: "300 of 300 left" }).getByText("20 requests/min").waitFor();
    const { data } = await service.call("GET", "/admin/accounts/default/keys?limit=500");
    const saved = Object(data).find((key: { name: string }) => key.name === "lab");
    assert.partialDeepStrictEqual(saved, {
      ...{ expires_at: "2099-01-31T12:30:00.000Z", portal: "own" },
      spending_caps: [{ credits: 300, every: "P1W" }],
      limits: { requests_per_minute: 20, tokens_per_minute: null, concurrent: null },
    });
    await page.getByRole("button", { name: "Rotate the key lab" }).click();
    await dialog.getByLabel("The present secret").selectOption("ends now: it leaked");
    await submit(page);
    await dialog.getByRole("button", { name: "Done" }).click();
    assert.equal(await askApi(service, made), 401);
    await page.getByRole("button", { name: "Revoke the key lab" }).click();
    await submit(page);
    await dialog.getByText("In the last 24 hours it made 1 request.").waitFor();
    await submit(page);
    await confirmed(page, /is revoked since/);
    await page.getByRole("row").filter({ hasText: "lab" }).getByText("revoked").waitFor();
    // Rotating the key of the session keeps the session.
    await page.getByRole("button", { name: "Rotate the key manager" }).click();
    await submit(page);
    await dialog.getByRole("button", { name: "Done" }).click();
    await page.reload();
    await page.getByRole("button", { name: "Rotate the key manager" }).waitFor();
  },
);

test("a new key is shown in a request for each client, with the URL of the API", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "default", { name: "maker", portal: "account" });
  await openPortal(visit, "/keys", secret);
  await page.getByRole("button", { name: "Create a key" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("client");
  await submit(page);
  const made = await dialog.getByLabel("Secret of the key").inputValue();
  const tabs = dialog.getByRole("tab");
  await tabs.first().waitFor();
  const names = ["curl", "Python", "Node", "LangChain", "Open WebUI", "LibreChat", "Continue"];
  assert.deepEqual(await tabs.allInnerTexts(), names);
  await tabs.first().focus();
  for (const name of names) {
    await dialog.getByRole("tab", { name, selected: true }).waitFor();
    await dialog.getByRole("button", { name: `Copy the request with ${name}` }).click();
    const copied: string = await page.evaluate("navigator.clipboard.readText()");
    for (const part of [`${service.apiUrl}/v1`, made]) assert.ok(copied.includes(part), copied);
    const hasModel = copied.includes("smollm2-135m-instruct");
    assert.equal(hasModel, name !== "Open WebUI", copied);
    await dialog.getByRole("tab", { name, selected: true }).press("ArrowRight");
  }
  await assertAccessible(page);
  await dialog.getByRole("button", { name: "Done" }).click();
  assert.ok(!(await page.content()).includes(made));
});

test("a key with the right own sees and rotates only itself, and why", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "default", { name: "alone" });
  await openPortal(visit, "/keys", secret);
  await page.getByText("This key manages only itself").waitFor();
  assert.equal(await page.getByRole("region", { name: "Keys" }).getByRole("row").count(), 2);
  assert.deepEqual(await page.getByRole("main").getByRole("button").allInnerTexts(), ["Rotate"]);
});

test("a form sends what was typed, and no setting that changed meanwhile", async (visit) => {
  const { page, service, expects } = visit;
  const { secret } = await keyOf(service, "default", { name: "editor", portal: "account" });
  const other = await keyOf(service, "default", { name: "before", concurrent: 5, tokens_per_minute: 900 });
  await openPortal(visit, "/keys", secret);
  await page.getByRole("button", { name: "Edit the key before" }).click();
  const dialog = page.getByRole("dialog", { name: "Edit the key" });
  await dialog.getByLabel("Name").fill("after");
  await dialog.getByLabel("Tokens per minute").fill("800");
  const lower = { operation_id: "lower", concurrent: 2 };
  await service.call("PATCH", `/admin/keys/${other.id}`, lower);
  await endPortalSession(visit);
  expects(/^401 PATCH \/api\/keys\/key/);
  await submit(page);
  await page.getByRole("heading", { name: "Sign in again" }).waitFor();
  await page.getByLabel("API key").fill(secret);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Sign in again" }).waitFor({ state: "detached" });
  // The list behind the form is loaded again.
  await page.getByRole("row", { includeHidden: true }).filter({ hasText: "2 at once" }).waitFor();
  assert.equal(await dialog.getByLabel("Name").inputValue(), "after");
  await submit(page);
  await confirmed(page, /is changed\. Its next request uses/);
  await page.getByRole("row").filter({ hasText: "after" }).getByText("800 tokens/min, 2 at once").waitFor();
});

releaseTest("a key with a cap changes names only, and a key may give itself less", async (visit) => {
  const { page, service } = visit;
  const settings = { name: "treasurer", portal: "account", concurrent: 3 };
  const { id, secret } = await keyOf(service, "default", settings);
  await keyOf(service, "default", { name: "ward" });
  await openPortal(visit, "/keys", secret);
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Edit the key treasurer" }).click();
  await dialog.getByText("You are signed in with this key.").waitFor();
  await dialog.getByLabel("Requests at once").fill("2");
  await dialog.getByLabel("Budget in credits").fill("100");
  await dialog.getByLabel("Budget period").selectOption("P1D");
  await submit(page);
  await confirmed(page, /is changed\. Its next request uses/);
  await page.getByText("This key has a spending cap. A new key could spend more than that.").waitFor();
  await page.getByRole("button", { name: "Edit the key ward" }).click();
  await dialog.getByText("it can change the names of keys only").waitFor();
  assert.equal(await dialog.locator("input, select").count(), 1);
  await dialog.getByLabel("Name").fill(hostile);
  await submit(page);
  await page.getByRole("row").filter({ hasText: hostile }).first().waitFor();
  const { data } = await service.call("GET", "/admin/accounts/default/keys?limit=500");
  const own = Object(data).find((key: { id: string }) => key.id === id);
  assert.partialDeepStrictEqual(own, { limits: { concurrent: 2 }, spending_caps: [{ credits: 100 }] });
});

test("revoking the key of the session is announced, and ends the session", async (visit) => {
  const { page, service, expects } = visit;
  const { secret } = await keyOf(service, "default", { name: "leaving", portal: "account" });
  await openPortal(visit, "/keys", secret);
  await page.getByRole("button", { name: "Revoke the key leaving" }).click();
  await submit(page);
  await page.getByText("You are signed in with this key: this session ends too.").waitFor();
  expects(/^401 GET/);
  await submit(page);
  await page.getByLabel("API key").waitFor();
  assert.equal(await askApi(service, secret), 401);
});
