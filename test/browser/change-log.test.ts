/** Who changed what: the log of operators and the journal of an account, in sentences. */
import assert from "node:assert/strict";
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, assertFits, open, twoPlans } from "../fixtures/console.ts";

const test = browserTests(twoPlans);

test("one import is one line that unfolds, names lead on, and raw data is behind a click", async (visit) => {
  const { page, service } = visit;
  for (const n of [1, 2, 3, 4]) {
    const id = `class-${n}`;
    await service.call("POST", "/admin/accounts", { id, plan: "student", owner: `Pupil ${n}` });
    const gift = { operation_id: `gift-${n}`, credits: 500, reason: "the first week" };
    await service.call("POST", `/admin/accounts/${id}/adjustments`, gift);
  }
  await open(visit, "/operators");
  const log = page.getByRole("region", { name: "Changes, newest first" });
  const lineOf = (text: RegExp | string) => log.locator(".line").filter({ hasText: text }).last();
  const group = lineOf(/The owner made \d+ changes: /);
  await group.waitFor();
  assert.match(await group.innerText(), /4 promotions given \(2,000 credits\), .*4 accounts opened/);
  assert.equal(await log.getByText("class-2").count(), 0);
  await group.getByRole("button").click();
  const told = lineOf("The owner gave class-2 500 credits: the first week");
  await told.getByRole("button").click();
  await told.getByText('"operation": "operation:gift-2"').waitFor();
  await assertAccessible(page);
  await page.setViewportSize({ width: 390, height: 800 });
  await assertFits(page);
  await told.getByRole("link", { name: "class-2" }).click();
  await page.getByRole("link", { name: "Journal" }).click();
  const gift = page
    .getByRole("region", { name: "Journal of the account" })
    .locator("p")
    .filter({ hasText: "gave" });
  assert.equal(await gift.innerText(), "The owner gave class-2 500 credits: the first week");
  await gift.getByRole("link", { name: "The owner" }).click();
  await page.waitForURL(/\/operators\?by=owner$/);
  await group.waitFor();
});
