/** The portal as the holder of a key uses it: balance, requests, usage, keys, first request. */
import assert from "node:assert/strict";
import { browserTests, type ConsoleService, type Visit } from "../fixtures/browser.ts";
import {
  assertAccessible,
  assertFits,
  assertRefused,
  confirmed,
  dialogClosed,
  loaded,
  submit,
} from "../fixtures/console.ts";
import { ask } from "../fixtures/http-stream.ts";
import { endPortalSession, keyOf, openPortal } from "../fixtures/portal-pages.ts";

const test = browserTests({ pages: "portal" });
const model = "smollm2-135m-instruct";
const hostile = "<img src=x onerror=alert(1)>";
const pages = ["", "requests", "usage", "keys", "start", "chat"];

/** Sends a request to the public API. Returns its status. */
async function askApi({ apiUrl }: ConsoleService, key: string): Promise<number> {
  const response = await ask({ url: apiUrl, key, model, content: "Hi", max_tokens: 5 });
  await response.text();
  return response.status;
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
  expects("401 GET /api/session", "401 POST /api/session");
  await page.goto(service.portalUrl);
  await page.getByText("You get one from the operator").waitFor();
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
  await page.getByRole("button", { name: "Log out" }).click();
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

test("a request between the list and the first event of the stream is not missed", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "default", { name: "between" });
  const { promise: asked, resolve: release } = Promise.withResolvers<void>();
  await page.route("**/api/live", async (route) => {
    await asked;
    await route.continue();
  });
  await openPortal(visit, "/start", secret);
  await page.goto(service.portalUrl);
  await page.getByText("No request has finished yet").waitFor();
  assert.equal(await askApi(service, secret), 200);
  release();
  await page.getByRole("region", { name: "Latest finished requests" }).waitFor();
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
    ...[receipt.prompt_tokens - receipt.cached_tokens, receipt.completion_tokens],
    ...[receipt.price_prompt.toLocaleString("en-US"), receipt.price_completion.toLocaleString("en-US")],
    ...[receipt.cost_micro / 1_000_000, "Base credits", receipt.request_id],
  ]) {
    assert.ok(text.includes(String(shown)), `${shown} in ${text}`);
  }
  assert.equal(receipt.base_micro, receipt.cost_micro);
  await page.keyboard.press("Escape");
  await dialogClosed(page);
  await page.getByLabel("Day (UTC)").fill("2020-01-31");
  await page.getByText("No request has finished in this selection").waitFor();
  await page.getByRole("link", { name: "Show all requests" }).click();
  await rows.nth(1).waitFor();
});

test("creates a key within the limits of the own one, rotates and revokes it", async (visit) => {
  const { page, service, expects } = visit;
  const settings = { name: "manager", portal: "account", requests_per_minute: 50 };
  const { secret } = await keyOf(service, "default", settings);
  await openPortal(visit, "/keys", secret);
  await page.getByRole("button", { name: "Create a key" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("At most 50, as your key allows").waitFor();
  await dialog.getByLabel("Name").fill("<b>lab</b>");
  await dialog.getByLabel("Requests per minute").fill("51");
  expects("400 POST /api/keys");
  await submit(page);
  await assertRefused(dialog.getByLabel("Requests per minute"), /at most 50/, { Name: "<b>lab</b>" });
  await dialog.getByLabel("Requests per minute").fill("");
  await submit(page);
  await dialog.getByRole("button", { name: "Copy" }).click();
  await dialog.getByText("Copied.").waitFor();
  const made: string = await page.evaluate("navigator.clipboard.readText()");
  assert.equal(await askApi(service, made), 200);
  await dialog.getByRole("button", { name: "Done" }).click();
  // The new key has the limit of the key that made it.
  await page.getByRole("row").filter({ hasText: "<b>lab</b>" }).getByText("50 requests/min").waitFor();
  await page.getByRole("button", { name: "Rotate the key <b>lab</b>" }).click();
  await dialog.getByLabel("The present secret stays valid for").selectOption("none");
  await submit(page);
  await dialog.getByRole("button", { name: "Done" }).click();
  assert.equal(await askApi(service, made), 401);
  await page.getByRole("button", { name: "Revoke the key <b>lab</b>" }).click();
  await submit(page);
  await dialog.getByText("In the last 24 hours it made 1 request.").waitFor();
  await submit(page);
  await confirmed(page, "The key is revoked.");
  await page.getByRole("row").filter({ hasText: "<b>lab</b>" }).getByText("revoked").waitFor();
  // Rotating the key of the session keeps the session.
  await page.getByRole("button", { name: "Rotate the key manager" }).click();
  await submit(page);
  await dialog.getByRole("button", { name: "Done" }).click();
  await page.reload();
  await page.getByRole("button", { name: "Rotate the key manager" }).waitFor();
});

test("a key with the right own sees and rotates only itself, and why", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "default", { name: "alone" });
  await openPortal(visit, "/keys", secret);
  await page.getByText("This key manages only itself").waitFor();
  assert.equal(await page.getByRole("region", { name: "Keys" }).getByRole("row").count(), 2);
  assert.deepEqual(await page.getByRole("main").getByRole("button").allInnerTexts(), ["Rotate"]);
});

test("a session that ends while a form is filled loses nothing that was typed", async (visit) => {
  const { page, service, expects } = visit;
  const { secret } = await keyOf(service, "default", { name: "typing", portal: "account" });
  await openPortal(visit, "/keys", secret);
  await page.getByRole("button", { name: "Create a key" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("kept");
  await endPortalSession(visit);
  expects("401 POST /api/keys");
  await submit(page);
  await page.getByRole("heading", { name: "Your session has ended" }).waitFor();
  await page.getByLabel("API key").fill(secret);
  await page.keyboard.press("Enter");
  const name = page.getByRole("dialog").getByLabel("Name");
  await page.getByRole("heading", { name: "Your session has ended" }).waitFor({ state: "detached" });
  assert.equal(await name.inputValue(), "kept");
  await submit(page);
  await page.getByRole("button", { name: "Done" }).click();
  await page.getByRole("row").filter({ hasText: "kept" }).waitFor();
});

test("gives a first request to copy, without the key", async (visit) => {
  const { page, service } = visit;
  await openPortal(visit, "/start");
  await page.getByRole("button", { name: "Copy the request with curl" }).click();
  const copied: string = await page.evaluate("navigator.clipboard.readText()");
  assert.ok(copied.includes(`${service.apiUrl}/v1/chat/completions`) && copied.includes(model), copied);
  assert.ok(!(await page.content()).includes(service.key));
});

test("the focus goes to the heading of the next page", async (visit) => {
  const { page } = visit;
  await openPortal(visit, "/");
  await page.getByRole("link", { name: "Usage" }).focus();
  await page.keyboard.press("Enter");
  await page.locator("h1:focus").getByText("Usage").waitFor();
  await page.getByText(/credits; hours in UTC/).waitFor();
});

for (const colorScheme of ["light", "dark"] as const) {
  const viewport = { width: 360, height: 740 };
  const look = async (visit: Visit) => {
    await openPortal(visit, "/");
    for (const name of pages) {
      await visit.page.goto(`${visit.service.portalUrl}/${name}`);
      await loaded(visit.page);
      await assertFits(visit.page);
      await assertAccessible(visit.page);
    }
  };
  test(`every page is accessible and fits 360 pixels, ${colorScheme}`, look, { colorScheme, viewport });
}
