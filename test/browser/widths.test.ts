/**
 * Every page of the console and the portal in narrow and wide windows: no value and no button is
 * out of sight at the side.
 */
import assert from "node:assert/strict";
import type { Locator, Page } from "playwright-core";
import { browserTests, type Visit } from "../fixtures/browser.ts";
import { assertAccessible, assertFits, loaded, open } from "../fixtures/console.ts";
import { openStream } from "../fixtures/http-stream.ts";
import { keyOf, openPortal } from "../fixtures/portal-pages.ts";
import { monthOfData } from "../fixtures/realistic-ledger.ts";
import { endless } from "../fixtures/running-requests.ts";

const test = browserTests(monthOfData);
const widths = [390, 768, 1280];
const consolePages = [
  ...["", "/accounts", "/plans", "/usage", "/usage?by=account", "/health"],
  ...["", "/keys", "/usage", "/receipts", "/journal"].map((tab) => `/accounts/ada${tab}`),
];
const portalPages = ["/", "/requests", "/usage?by=model", "/keys", "/start", "/chat"];

/** Shows the page in each width, with the tables that charts have for screen readers. */
async function assertFitsEverywhere(page: Page): Promise<void> {
  for (const width of widths) {
    await page.setViewportSize({ width, height: 800 });
    await assertFits(page);
  }
}

/** Asserts that the element can be seen whole: nothing covers or cuts off one of its corners. */
async function assertWhole(element: Locator, { scroll }: { scroll: boolean }): Promise<void> {
  if (scroll) await element.scrollIntoViewIfNeeded();
  const hidden: string[] = await element.evaluate((shown) => {
    const { left, right, top, bottom } = shown.getBoundingClientRect();
    const corners = [left + 4, right - 4].flatMap((x) => [top + 4, bottom - 4].map((y) => [x, y] as const));
    const at = (x: number, y: number) => shown.ownerDocument.elementFromPoint(x, y);
    return corners.filter(([x, y]) => !shown.contains(at(x, y))).map(String);
  });
  assert.deepEqual(hidden, [], `corners of ${String(element)} that cannot be seen`);
}

async function runawayRequest({ service }: Pick<Visit, "service">) {
  const { secret } = await keyOf(service, "ada", { name: "runaway" });
  return await openStream({ url: service.apiUrl, key: secret, model: "writer", ...endless });
}

test("the overview shows the Stop of a runaway request at once", async (visit) => {
  const { page } = visit;
  const stream = await runawayRequest(visit);
  await open(visit, "");
  const stop = page.getByRole("button", { name: `Stop the request ${stream.requestId}` });
  await stop.waitFor();
  await assertWhole(stop, { scroll: false });
  await assertFitsEverywhere(page);
  await page.setViewportSize({ width: 390, height: 800 });
  await assertWhole(stop, { scroll: true });
  await assertAccessible(page);
  stream.abort();
});

for (const path of consolePages) {
  test(`the console's page "${path}" fits every window`, async (visit) => {
    await open(visit, path);
    await assertFitsEverywhere(visit.page);
  });
}

test("every page of the portal fits every window", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "ada", { name: "all of them", portal: "account" });
  await openPortal(visit, "/", secret);
  for (const path of portalPages) {
    await page.goto(service.portalUrl + path);
    await loaded(page);
    await assertFitsEverywhere(page);
  }
});

test("actions of keys and costs of requests can be seen in the narrowest window", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "ada", { name: "narrow", portal: "account" });
  await page.setViewportSize({ width: 390, height: 800 });
  await open(visit, "/accounts/ada/keys");
  await assertWhole(page.getByRole("button", { name: "Revoke the key narrow" }), { scroll: true });
  await open(visit, "/accounts/ada/receipts");
  await assertWhole(page.locator("[data-title^=Cost] .amount").first(), { scroll: true });
  await assertAccessible(page);
  await openPortal(visit, "/keys", secret);
  await assertWhole(page.getByRole("button", { name: "Revoke the key narrow" }), { scroll: true });
  await page.goto(`${service.portalUrl}/requests`);
  await assertWhole(page.locator("[data-title^=Cost] .amount").first(), { scroll: true });
  // Screen readers still find a table.
  const row = page.getByRole("region", { name: "Finished requests" }).getByRole("row").nth(1);
  await row.getByRole("button", { name: /^Why/ }).waitFor();
  await assertAccessible(page);
});
