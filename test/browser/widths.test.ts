/**
 * Pages of the console and the portal in narrow and wide windows, before a release all of them: no
 * value and no button is out of sight at the side.
 */
import assert from "node:assert/strict";
import type { Locator, Page } from "playwright-core";
import { browserTests, type Visit } from "../fixtures/browser.ts";
import {
  assertAccessible,
  assertFits,
  assertReadable,
  assertSteady,
  choose,
  loaded,
  open,
  watchShifts,
} from "../fixtures/console.ts";
import { openStream } from "../fixtures/http-stream.ts";
import { keyOf, openPortal } from "../fixtures/portal-pages.ts";
import { monthOfData } from "../fixtures/realistic-ledger.ts";
import { endless } from "../fixtures/running-requests.ts";
import { some } from "../fixtures/thorough.ts";

const test = browserTests(monthOfData);
const narrowest = { width: 360, height: 740 };
const widths = [390, 768, 1280];
const longest = "a-department-with-a-very-long-identifier-and-no-spaces";
const topics = ["", "/keys", "/usage", "/receipts", "/journal"];
const consolePages = [
  "",
  "/accounts",
  "/plans",
  "/usage",
  "/usage?by=account",
  "/usage?by=key",
  "/health",
  ...topics.map((topic) => `/accounts/${longest}${topic}`),
];
const portalPages = ["/", "/requests", "/usage?by=model", "/keys", "/models", "/start", "/chat"];

/** Shows the page in each width, with the tables that charts have for screen readers. */
async function assertFitsEverywhere(page: Page): Promise<void> {
  for (const width of widths) {
    await page.setViewportSize({ width, height: 800 });
    await assertFits(page);
    await assertReadable(page);
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

/** In the narrowest window and the light theme first, as the page is then. */
async function assertGood(page: Page, url: string): Promise<void> {
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize(narrowest);
  await page.goto(url);
  await loaded(page);
  await assertSteady(page);
  await assertFits(page);
  await assertAccessible(page);
  // The theme changes colours alone.
  await page.emulateMedia({ colorScheme: "dark" });
  await assertAccessible(page, "colours");
  await assertFitsEverywhere(page);
}

// `npm run look` checks the same at more widths.
test("pages of the console fit every window and meet WCAG 2.2 AA in both themes, with the longest names", async (visit) => {
  const { page, service } = visit;
  await page.setViewportSize(narrowest);
  await using _shifts = await watchShifts(page);
  await open(visit, "/accounts");
  await page.setViewportSize({ width: 1280, height: 800 });
  await assertReadable(page);
  await page.setViewportSize(narrowest);
  const header = page.getByRole("banner");
  assert.ok(((await header.boundingBox())?.height ?? 0) < 60, "the header has one row");
  const row = page.getByRole("row").filter({ hasText: "Ada Lovelace" });
  assert.ok(((await row.boundingBox())?.height ?? 0) < 110, "an account has up to four lines");
  await page.getByRole("button", { name: "Menu" }).click();
  await assertFits(page);
  await assertAccessible(page);
  await page.getByRole("link", { name: "Plans" }).click();
  await page.getByRole("heading", { name: "Plans", level: 1 }).waitFor();
  assert.equal(await page.getByRole("navigation", { name: "Sections" }).count(), 0, "the menu closes");
  await page.setViewportSize({ width: 1920, height: 1080 });
  assert.equal((await header.boundingBox())?.width, 224, "the sections stand at the side");
  for (const path of some(consolePages, 6)) await assertGood(page, `${service.url}/console${path}`);
  for (const topic of some(topics, 5)) {
    await page.goto(`${service.url}/console/accounts/ada${topic}`);
    await loaded(page);
    await assertFitsEverywhere(page);
  }
});

test("forms fit 360 pixels and meet WCAG 2.2 AA, with the longest names", async (visit) => {
  const { page } = visit;
  await page.setViewportSize(narrowest);
  await open(visit, `/accounts/${longest}`);
  await page.getByRole("button", { name: "Top up" }).click();
  await page.getByRole("dialog").waitFor();
  await assertFits(page);
  await page.keyboard.press("Escape");
  for (const action of some(["Change the plan", "Adjust credits", "Edit the contact"], 3)) {
    await choose(page, action);
    await assertFits(page);
    await assertAccessible(page);
    await page.getByRole("button", { name: "Cancel" }).click();
  }
});

test("pages of the portal fit every window and meet WCAG 2.2 AA in both themes", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "ada", { name: "all of them", portal: "account" });
  await using _shifts = await watchShifts(page);
  await openPortal(visit, "/", secret);
  for (const path of some(portalPages, 6)) await assertGood(page, service.portalUrl + path);
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
