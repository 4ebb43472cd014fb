/** Charts of several models and keys beside each other, in the portal and the console. */
import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, loaded, open } from "../fixtures/console.ts";
import { keyOf, openPortal } from "../fixtures/portal-pages.ts";
import { monthOfData } from "../fixtures/realistic-ledger.ts";
import { ofRelease } from "../fixtures/thorough.ts";

const test = browserTests(monthOfData);
const releaseTest = ofRelease(test);

const legend = (page: Page) => page.locator("figure").first().getByRole("button");
/** The amounts of bars of the first chart, as heights in pixels, by time from the bottom up. */
const heights = (page: Page): Promise<number[][]> =>
  page.evaluate(`[...document.querySelector("figure .plot").querySelectorAll(".time")].map((time) =>
    [...time.querySelectorAll("i")].map((bar) => bar.getBoundingClientRect().height).reverse())`);

const microOf = (report: object): number => Object(report).total.cost_micro;

test("models are stacked in bars, with their sum, the change, and a box at the pointer", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "ada", { name: "viewer", portal: "account" });
  await openPortal(visit, "/usage", secret);
  await legend(page).filter({ hasText: "tutor-small" }).waitFor();
  const sums = (query: string) => service.call("GET", `/admin/usage/sums?account=ada&${query}`);
  const { data } = await sums("by=model&order=cost");
  const models: string[] = Object(data).map(({ model }: { model: string }) => model);
  assert.equal(models.length, 3);
  const names = (await legend(page).allInnerTexts()).map((text) => text.trim().split(/\s+/)[0]);
  assert.deepEqual(names, models, "the largest first");
  await page.getByRole("button", { name: "7 days" }).click();
  await page.locator("figure").first().locator(".time").nth(7).waitFor({ state: "detached" });
  await loaded(page);
  // A bar is as high as its amount: all of them have one scale.
  const day = (ago: number) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10);
  const shown = await Promise.all(
    [6, 5, 4, 3, 2, 1].map((ago) =>
      Promise.all(
        models.map(async (model) =>
          microOf(await sums(`from=${day(ago)}&to=${day(ago - 1)}&model=${model}`)),
        ),
      ),
    ),
  );
  const all = (await heights(page)).slice(0, 6);
  const pixels = Math.max(...all.flat()) / Math.max(...shown.flat());
  for (const [index, amounts] of shown.entries())
    for (const [place, micro] of amounts.entries())
      assert.ok(
        Math.abs((all[index]?.[place] ?? -9) - micro * pixels) < 1,
        `${day(6 - index)} ${models[place]}`,
      );
  assert.deepEqual(
    await page.locator("figure").first().locator(".growing > span").allInnerTexts(),
    [day(0).slice(5)],
    "today still grows",
  );
  const [now, before] = await Promise.all([
    sums(`from=${day(6)}&to=${day(-1)}&limit=1`),
    sums(`from=${day(13)}&to=${day(6)}&limit=1`),
  ]);
  const percent = Math.round((microOf(now) / microOf(before) - 1) * 100);
  const figure = page.locator("figure .figure").first();
  await figure.getByText(`${percent < 0 ? "−" : "+"}${Math.abs(percent)} % compared`).waitFor();
  assert.equal(await figure.locator("strong").innerText(), inWords(microOf(now)));
  await page.locator("figure .time").nth(2).hover();
  const box = await page.locator(".box").innerText();
  const third = shown[2] ?? [];
  for (const micro of [...third, third.reduce((sum, each) => sum + each, 0)])
    assert.ok(box.includes(inWords(micro)), `${micro} in ${box}`);
  assert.ok(box.includes(day(4)), box);
  // By keyboard: the largest series is hidden, and the scale is that of the others.
  await legend(page).first().focus();
  await page.keyboard.press("Enter");
  await page.locator("figure button[aria-pressed=false]").getByText(String(models[0])).waitFor();
  assert.equal((await heights(page))[0]?.length, 2);
  await page.getByRole("button", { name: "30 days" }).click();
  await loaded(page);
  // The choice stays with another period.
  await page.locator("figure button[aria-pressed=false]").getByText(String(models[0])).waitFor();
  await assertAccessible(page);
});

/** As a figure shows it. */
function inWords(micro: number): string {
  const decimals = micro % 1_000_000 === 0 ? 0 : 2;
  return (micro / 1_000_000).toLocaleString("en-US", {
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
  });
}

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
  assert.equal(await buttons.count(), 7, "six accounts, and all others");
  await buttons.filter({ hasText: "Ada Lovelace" }).waitFor();
  await card.getByRole("button", { name: "by model" }).click();
  await buttons.filter({ hasText: "writer" }).waitFor();
  await assertAccessible(page);
});
