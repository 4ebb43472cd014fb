/**
 * The page docs/time-line.html, opened as a file: events are dragged and moved by keys, and the
 * grants and facts are those that the kernel computes here for the same history.
 */
import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import type { Page } from "playwright-core";
import { exactCredits } from "../../src/units.ts";
import { historyIn, named } from "../../tools/time-line/history.ts";
import { pageFile } from "../../tools/time-line/page.ts";
import { play } from "../../tools/time-line/play.ts";
import { grantsAt } from "../../tools/time-line/strips.ts";
import { factsOf } from "../../tools/time-line/words.ts";
import { visit, type WatchedPage } from "../fixtures/browser.ts";
import { launchChromium, noChromium } from "../fixtures/chromium.ts";
import { assertAccessible } from "../fixtures/console.ts";
import { until } from "../fixtures/until.ts";

const address = pathToFileURL(path.join(import.meta.dirname, "../..", pageFile)).href;

/** One browser for all tests, each with a page of its own. */
test("the time line", { skip: noChromium ?? false }, async (t) => {
  await using chromium = await launchChromium();
  const onPage = (name: string, run: (visited: WatchedPage) => Promise<void>) =>
    t.test(name, async () => {
      await using visited = await visit(chromium.browser, []);
      await Promise.race([run(visited), visited.failed]);
      visited.assertExpected();
    });

  await onPage("a dragged crash changes the charge and the grants", async ({ page }) => {
    await page.goto(`${address}#request=1:00,6:00&crash=3:00&payment=0:15,50&at=8:00`);
    await assertAsKernel(page);
    const charge = page.locator(".fact", { hasText: "charge of" });
    assert.match(await charge.innerText(), /charge of 15 credits for 64 \+ 896 tokens/);
    const mark = page.getByRole("slider", { name: "Crash 1" });
    const box = await mark.boundingBox();
    assert.ok(box !== null);
    await page.mouse.move(box.x + 8, box.y + 8);
    await page.mouse.down();
    // The track has two days. The crash moves by two hours, in two steps.
    const hour = Number(await page.evaluate("document.querySelector('.crash .track').clientWidth")) / 48;
    await page.mouse.move(box.x + 8 + hour, box.y + 8);
    await page.mouse.move(box.x + 8 + 2 * hour, box.y + 8);
    // The picture follows while the button is down.
    await page.locator(".fact", { hasText: "charge of 31 credits for 64 + 1,920 tokens" }).waitFor();
    await page.mouse.up();
    await until("the new address", () => page.url().includes("crash=5:00"));
    await assertAsKernel(page);
  });

  await onPage("events move, grow and go by keys", async ({ page }) => {
    await page.goto(`${address}#request=1:00,2:00&request=6:00,2:00&at=8:00`);
    await page.getByRole("slider", { name: "Request 2" }).focus();
    for (const key of ["PageUp", "ArrowLeft", "Shift+ArrowRight"]) await page.keyboard.press(key);
    await until("the new address", () => page.url().includes("request=6:45,2:15"));
    assert.equal(await page.locator("li[data-selected=true]").count(), 6, "its hold, extensions and end");
    await assertAsKernel(page);
    await page.keyboard.press("Delete");
    await page.getByRole("slider", { name: "Request 2" }).waitFor({ state: "detached" });
    assert.equal(await page.evaluate("document.activeElement.id"), "add-request");
    await page.keyboard.press("Enter");
    await until("a request at the cursor", () => page.url().includes("request=8:00,2:30"));
    await assertAsKernel(page);
  });

  await onPage("an address that is no history has a message", async ({ page }) => {
    await page.goto(`${address}#request=10:10,1:00`);
    const alert = await page.getByRole("alert").innerText();
    assert.match(alert, /“request=10:10,1:00” cannot be read: times are quarters of an hour/);
    await page.getByRole("link", { name: "A refund of spent credits" }).click();
    await page.locator(".refused", { hasText: "too_much" }).first().waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
    await assertAsKernel(page);
  });

  for (const colorScheme of ["light", "dark"] as const) {
    await onPage(`it is accessible and fits narrow screens, ${colorScheme}`, async ({ page }) => {
      await page.emulateMedia({ colorScheme });
      await page.goto(address);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await assertAccessible(page);
      await page.setViewportSize({ width: 390, height: 800 });
      const width = await page.evaluate("document.documentElement.scrollWidth");
      assert.equal(width, 390);
    });
  }
});

/** Asserts that the page shows the facts and grants of the history in its address. */
async function assertAsKernel(page: Page): Promise<void> {
  await page.locator(".log li").first().waitFor();
  const { events, cursor } = historyIn(new URL(page.url()).hash.slice(1));
  const played = play(named(events));
  const sample = played.samples[cursor];
  assert.ok(sample !== undefined);
  const facts = played.commits.flatMap((commit) => factsOf(commit, played.grants));
  const shown = await page.locator(".fact").allInnerTexts();
  assert.deepEqual(
    shown,
    facts.map(({ seq, text }) => `№ ${seq} ${text}`),
  );
  const cells = await page.locator(".balance tbody .number").allInnerTexts();
  const amounts = grantsAt(played, sample).flatMap(({ amountMicro, spentMicro, heldMicro }) => [
    ...[amountMicro, spentMicro, heldMicro, Math.max(0, amountMicro - spentMicro - heldMicro)],
  ]);
  assert.deepEqual(cells, amounts.map(exactCredits));
}
