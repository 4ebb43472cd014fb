/** The first hour of an operator: signing in, the first steps, and a key that is handed over. */
import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { exactCredits } from "../../src/units.ts";
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, endSession, open, submit } from "../fixtures/console.ts";
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

test("the first steps of a new service lead to a key that is handed over, and go when all are done", async (visit) => {
  const { page, service } = visit;
  await open(visit, "");
  const steps = page.getByRole("listitem");
  const isDone = (title: string) =>
    steps.filter({ hasText: title }).getByText("done", { exact: true }).waitFor();
  await isDone("A model is ready");
  await isDone("A plan is offered");
  await isDone("Holders see it in a portal");
  assert.equal(await steps.getByText("done", { exact: true }).count(), 3);
  await assertAccessible(page);

  // Six steps: open, name, address, send, invite, mail or copy.
  await page.getByRole("button", { name: "Open an account" }).click();
  const dialog = page.getByRole("dialog").first();
  await dialog.getByLabel("Account").fill("ada");
  await dialog.getByLabel("E-mail").fill("ada@x.example");
  await submit(page);
  const secret = await dialog.getByLabel("Secret of the key").inputValue();
  assert.match(secret, /^ink_/);
  const request = dialog.getByRole("tabpanel", { name: "curl" });
  assert.ok((await request.innerText()).includes(`${service.apiUrl}/v1/chat/completions`));
  assert.ok((await request.innerText()).includes(secret));
  await assertAccessible(page);
  await dialog.getByRole("button", { name: "Send as invitation" }).click();
  const invitation = page.getByRole("dialog").last();
  assert.equal(await invitation.getByLabel("E-mail").inputValue(), "ada@x.example");
  await invitation.getByRole("button", { name: "Make the link" }).click();
  const link = await invitation.getByLabel("Link of the invitation").inputValue();
  assert.ok(link.startsWith(`${service.portalUrl}/#invite=`), link);
  await invitation.getByRole("button", { name: "Done" }).click();

  // A real request with the new key.
  await dialog.getByRole("button", { name: "Send a first request" }).click();
  const first = page.getByRole("dialog").last();
  await first.getByRole("button", { name: "Send it" }).click();
  await first.getByText(/^It cost [\d.]+ credits for \d+ tokens/).waitFor();
  const [receipt] = Object(await service.call("GET", "/admin/usage?account=ada")).data;
  assert.ok((await first.innerText()).includes(exactCredits(receipt.cost_micro)));
  const why = await first.getByRole("link", { name: "Why it cost this" }).getAttribute("href");
  assert.ok(why?.endsWith(receipt.request_id), why ?? "");
  await first.getByRole("button", { name: "Done" }).click();
  await dialog.getByRole("button", { name: "Done" }).click();
  await page.getByRole("heading", { name: "ada", exact: true }).waitFor();

  await page.getByRole("link", { name: "Overview" }).first().click();
  await page.getByText("Nothing needs your attention.").waitFor();
  assert.equal(await page.getByRole("heading", { name: "First steps" }).count(), 0);
});

test("a mistyped key signs nobody out, and what needs attention has a button", async (visit) => {
  const { page, expects } = visit;
  await using _script = await page.addInitScript(`localStorage.removeItem("inkwell-first-steps-away")`);
  await page.route("**/admin/overview", async (route) => {
    const response = await route.fetch();
    if (response.status() === 304) return await route.fulfill({ response });
    const json = await response.json();
    const first_steps = { ...json.first_steps, request: false };
    const attention = [{ text: "The receiver crm fails: 500.", page: "events" }];
    await route.fulfill({ response, json: { ...json, first_steps, attention } });
  });
  await open(visit, "");
  expects("400 POST /admin/chat");
  await page.getByRole("button", { name: "Send a first request" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("API key").fill("ink_wrong");
  await dialog.getByRole("button", { name: "Send it" }).click();
  await dialog.getByText(/This API key is mistyped or incomplete/).waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Put away" }).click();
  await page.getByRole("heading", { name: "First steps" }).waitFor({ state: "detached" });
  assert.equal(await page.locator(".figure .spark").count(), 4);
  await assertAccessible(page);
  await page.getByRole("listitem").filter({ hasText: "The receiver crm fails" }).getByRole("link").click();
  await page.getByRole("heading", { name: "Events", exact: true }).waitFor();
});
