/** Charts of several models and keys beside each other, in the portal and the console. */
import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, loaded, open } from "../fixtures/console.ts";
import { keyOf, openPortal } from "../fixtures/portal-pages.ts";
import { monthOfData } from "../fixtures/realistic-ledger.ts";
import { ofRelease } from "../fixtures/thorough.ts";
import { until } from "../fixtures/until.ts";

const test = browserTests(monthOfData);
const releaseTest = ofRelease(test);

const legend = (page: Page) => page.locator("figure").first().getByRole("button");
const canvases = (page: Page) => page.locator("figure").first().locator("canvas");
/** The first chart as a picture. */
const drawing = "document.querySelector('figure canvas').toDataURL()";

test("models of an account are series that can be hidden and drawn on their own scales", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "ada", { name: "viewer", portal: "account" });
  await openPortal(visit, "/usage?by=model", secret);
  await legend(page).filter({ hasText: "tutor-small" }).waitFor();
  const { data } = await service.call("GET", "/admin/usage/sums?account=ada&by=model&order=cost");
  const models: string[] = Object(data).map(({ model }: { model: string }) => model);
  assert.equal(models.length, 3);
  const names = (await legend(page).allInnerTexts()).map((text) => text.trim().split(/\s+/)[0]);
  assert.deepEqual(names.slice(0, 3), models, "the largest first");
  // By keyboard: the largest series is hidden, and the scale is that of the others.
  const before = await page.evaluate(drawing);
  await legend(page).first().focus();
  await page.keyboard.press("Enter");
  await page.locator("figure button[aria-pressed=false]").getByText(String(models[0])).waitFor();
  // The chart is drawn again with the next frame.
  await until("another drawing", async () => (await page.evaluate(drawing)) !== before);
  await page.getByRole("button", { name: "7 days" }).click();
  await loaded(page);
  // The choice stays with another period.
  await page.locator("figure button[aria-pressed=false]").getByText(String(models[0])).waitFor();
  await legend(page).first().click();
  await page.getByRole("button", { name: "Each on its own scale" }).first().press("Space");
  await page.locator("figure h3").nth(2).waitFor();
  assert.deepEqual(await page.locator("figure").first().locator("h3").allInnerTexts(), models);
  await until("three charts are drawn", async () => (await canvases(page).count()) === 3);
  await assertAccessible(page);
});

test("the table of a chart has the exact values of each day and key", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "ada", { name: "reader", portal: "account" });
  await openPortal(visit, "/usage?by=key", secret);
  await legend(page).filter({ hasText: "notebook" }).waitFor();
  await page.locator("summary").getByText("Values as a table").first().press("Enter");
  const table = page.getByRole("region", { name: "Cost in credits by day" });
  await table.getByRole("row").nth(30).waitFor();
  const heads = await table.getByRole("columnheader").allInnerTexts();
  const keys = await service.call("GET", "/admin/accounts/ada/keys?limit=500");
  for (const { id, name } of Object(keys.data)) {
    const at = heads.indexOf(name);
    if (at === -1) continue;
    const sums = await service.call("GET", `/admin/usage/sums?account=ada&by=day&key=${id}&limit=500`);
    const costs = new Map(
      Object(sums.data).map(({ day, cost_micro }: Record<string, unknown>) => [day, cost_micro]),
    );
    for (const row of (await table.getByRole("row").all()).slice(1, 30)) {
      const cells = await row.getByRole("cell").allInnerTexts();
      const shown = Number(cells[at]?.replaceAll(/[^\d.]/g, ""));
      assert.equal(Math.round(shown * 1e6), costs.get(cells[0]) ?? 0, `${name} on ${cells[0]}`);
    }
  }
  assert.ok(heads.includes("laptop"), heads.join());
});

releaseTest("the overview compares accounts, and the smallest of many are one series", async (visit) => {
  const { page } = visit;
  await open(visit, "");
  const card = page.locator(".card").filter({ has: page.getByRole("heading", { name: "Cost by day" }) });
  await card.getByRole("button", { name: "by account" }).click();
  const buttons = card.locator("figure").getByRole("button");
  await buttons.filter({ hasText: "all others" }).waitFor();
  assert.equal(await buttons.count(), 8, "six accounts, all others, and the scale");
  await card.getByRole("button", { name: "by model" }).click();
  await buttons.filter({ hasText: "writer" }).waitFor();
  await assertAccessible(page);
});
