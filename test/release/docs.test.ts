/** The documents as pages in a real browser, from a folder and from the operator listener. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { documents } from "../../src/app/web-bundle.ts";
import { buildSite } from "../../tools/docs/site.ts";
import { launchChromium, noChromium } from "../fixtures/chromium.ts";
import { assertAccessible } from "../fixtures/console.ts";
import { startOperator } from "../fixtures/operator.ts";
import { startService } from "../fixtures/service.ts";

test("a browser searches the documents, in a folder and at the listener", {
  skip: noChromium ?? false,
}, async (t) => {
  const folder = mkdtempSync(path.join(tmpdir(), "inkwell-docs-site-"));
  t.after(() => rmSync(folder, { recursive: true }));
  await buildSite(folder);
  await using service = await startService();
  await using operator = await startOperator(service, [], { readDocuments: documents(folder) });
  await using chromium = await launchChromium();
  for (const base of [`${pathToFileURL(folder)}/`, `${operator.url}/docs/`]) {
    const page = await chromium.browser.newPage();
    const wrong: string[] = [];
    page.on("console", (message) => wrong.push(message.text()));
    page.on("pageerror", (error) => wrong.push(error.message));
    page.on("request", (request) => {
      if (!request.url().startsWith(base)) wrong.push(request.url());
    });
    await page.goto(`${base}operating/plans.html`);
    // The check reads the style sheet, which a page of a folder may not.
    if (base.startsWith("http:")) await assertAccessible(page);
    await page.keyboard.press("/");
    await page.keyboard.type("credits");
    await page.locator("#found").getByRole("link", { name: "Accounts and their credits: Credits" }).click();
    await page.waitForURL(`${base}operating/accounts.html#credits`);
    await page.getByRole("heading", { name: "Credits", exact: true }).waitFor();
    assert.deepEqual(wrong, []);
    await page.close();
  }
});
