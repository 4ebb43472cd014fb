/** The first hour of an operator: signing in, the first steps, and a key that is handed over. */
import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { browserTests } from "../fixtures/browser.ts";
import { endSession, open } from "../fixtures/console.ts";
import { endPortalSession, openPortal } from "../fixtures/portal-pages.ts";

const test = browserTests({ pages: "both" });

/** Everything that the browser writes into its log, of whatever level. */
function logOf(page: Page): string[] {
  const lines: string[] = [];
  page.on("console", (message) => lines.push(`${message.type()}: ${message.text()}`));
  return lines;
}

test("the sign-in pages write nothing into the log of the browser", async (visit) => {
  const { page, service } = visit;
  const log = logOf(page);
  await page.goto(`${service.url}/console`);
  await page.getByLabel("Operator token").waitFor();
  await page.goto(service.portalUrl);
  await page.getByLabel("API key").waitFor();
  // A browser whose session has ended asks whether it has one.
  await open(visit, "");
  await page.goto("about:blank");
  await endSession(visit);
  const asked = page.waitForResponse((response) => response.url() === `${service.url}/admin/session`);
  await page.goto(`${service.url}/console/accounts`);
  await page.getByLabel("Operator token").waitFor();
  const answer = await asked;
  assert.deepEqual([answer.status(), await answer.text()], [200, "null"]);
  await openPortal(visit, "");
  await page.goto("about:blank");
  await endPortalSession(visit);
  await page.goto(`${service.portalUrl}/keys`);
  await page.getByLabel("API key").waitFor();
  await page.goto(`${service.portalUrl}/#join=${"x".repeat(43)}`);
  await page.getByLabel("Your name").waitFor();
  assert.deepEqual(log, []);
});
