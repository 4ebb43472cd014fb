/** Filters that are wrong stay in their fields, and texts that are HTML are text on every page. */
import assert from "node:assert/strict";
import { browserTests } from "../fixtures/browser.ts";
import { choose, dialogClosed, loaded, open, submit, typePayment } from "../fixtures/console.ts";
import { ask } from "../fixtures/http-stream.ts";
import { ofRelease } from "../fixtures/thorough.ts";

const test = browserTests();
const releaseTest = ofRelease(test);

test("a period that ends before it begins is refused, and another one can be chosen", async (visit) => {
  const { page, expects } = visit;
  expects("400 GET /admin/usage/sums");
  await open(visit, "/usage?from=2026-03-10&to=2026-03-01");
  await page.getByRole("alert").filter({ hasText: /after/ }).first().waitFor();
  assert.equal(await page.getByLabel("From").inputValue(), "2026-03-10");
  await page.getByRole("button", { name: "7 days" }).click();
  await page.getByRole("alert").filter({ hasText: /after/ }).first().waitFor({ state: "detached" });
});

test("days in the address that do not exist are ignored", async (visit) => {
  const { page } = visit;
  await open(visit, "/usage?from=soon&to=2026-02-31x&by=nothing");
  assert.match(await page.getByLabel("From").inputValue(), /^\d{4}-\d{2}-\d{2}$/);
  await page.getByRole("button", { name: "30 days", pressed: true }).waitFor();
});

releaseTest("filters of receipts that contradict each other stay in their fields", async (visit) => {
  const { page, service, expects } = visit;
  await service.call("POST", "/admin/accounts", { id: "formed", plan: "starter" });
  expects("400 GET /admin/usage");
  await open(visit, "/accounts/formed/receipts?from=2026-03-10&to=2026-03-01");
  await page.getByLabel("Model").fill("<b>no model</b>");
  await page.getByLabel("Model").press("Enter");
  await page
    .getByRole("alert")
    .filter({ hasText: /must be after/ })
    .first()
    .waitFor();
  assert.equal(await page.getByLabel("From").inputValue(), "2026-03-10");
  assert.equal(await page.getByLabel("Model").inputValue(), "<b>no model</b>");
});

test("names, notes, reasons and ids that are HTML are text on every page", async (visit) => {
  const { page, service } = visit;
  const html = `<img src=x onerror="document.title='broken'"><b>x</b>&amp;`;
  await open(visit, "/accounts");
  await page.getByRole("button", { name: "Open an account" }).click();
  const dialog = page.getByRole("dialog");
  const fill = async (texts: Record<string, string>) => {
    await dialog.waitFor();
    for (const [label, text] of Object.entries(texts)) await dialog.getByLabel(label).fill(text);
  };
  await fill({ Account: "html", Owner: html, Note: html, "External id": html });
  await dialog.getByLabel("Key", { exact: true }).selectOption("None yet");
  await submit(page);
  await page.getByRole("heading", { name: html, exact: true }).waitFor();
  await page.getByRole("button", { name: "Top up" }).click();
  await fill({ Credits: "9", "Payment id": html });
  await submit(page);
  await dialogClosed(page);
  await choose(page, "Adjust credits");
  await fill({ Credits: "3", Reason: html });
  await submit(page);
  await dialog.locator(".preview").waitFor();
  await submit(page);
  await dialogClosed(page);
  await choose(page, "Refund a payment");
  await dialog.getByText(`${html}: 9 credits`).waitFor({ state: "attached" });
  await typePayment(page);
  await fill({ "Payment id": html, Credits: "1", Reason: html });
  await submit(page);
  await dialog.getByText(`Left of ${html}`).waitFor();
  await submit(page);
  await dialogClosed(page);
  const key = await service.call("POST", "/admin/accounts/html/keys", { operation_id: html, name: html });
  const content = "Hi";
  const answer = await ask({ url: service.apiUrl, key: String(key.key), content, max_tokens: 1, user: html });
  assert.equal(answer.status, 200, await answer.text());
  const assertText = async (path: string) => {
    const found: number = await page.evaluate(
      "document.querySelectorAll('img, b:not(.bar b)').length + (document.title === 'broken' ? 1 : 0)",
    );
    assert.equal(found, 0, `${path} has elements of the text`);
  };
  // The pages that show one of the texts.
  const shows = ["/accounts", "/accounts/html", "/accounts/html/keys", "/accounts/html/journal"];
  const others = [
    "",
    "/usage?by=key",
    "/usage?by=account",
    "/accounts/html/usage?by=key",
    "/accounts/html/receipts",
  ];
  const asked = [`/accounts?search=${encodeURIComponent(html)}`, `/accounts/${encodeURIComponent(html)}`];
  visit.expects(/^40[04] GET \/admin\/accounts\//);
  for (const path of [...shows, ...others, ...asked]) {
    await page.goto(`${service.url}/console${path}`);
    await loaded(page);
    if (shows.includes(path)) await page.locator("main").getByText(html).first().waitFor();
    await assertText(path);
  }
  await page.goto(`${service.url}/console/accounts/html/keys`);
  for (const action of ["Edit", "Rotate", "Revoke"]) {
    await page.getByRole("button", { name: `${action} the key ${html}` }).click();
    await dialog.getByRole("heading", { name: html }).waitFor();
    await assertText(`the form ${action}`);
    await page.getByRole("button", { name: "Cancel" }).click();
  }
});
