/** The work of an operator on accounts, as a person does it in the console. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { browserTests } from "../fixtures/browser.ts";
import { choose, loaded, open } from "../fixtures/console.ts";
import { monthOfData } from "../fixtures/realistic-ledger.ts";
import { ofRelease } from "../fixtures/thorough.ts";

const test = browserTests(monthOfData);
const releaseTest = ofRelease(test);

test("lists thousands of accounts by pages, which the back button and a reload keep", async (visit) => {
  const { page } = visit;
  await open(visit, "/accounts");
  const rows = page.getByRole("region", { name: "Accounts" }).getByRole("row");
  const idOfFirst = () => rows.nth(1).getByRole("link").first().innerText();
  const first = await idOfFirst();
  const count = await rows.count();
  assert.ok(count > 20 && count <= 101, `${count} rows`);
  await page.getByRole("button", { name: "Next page" }).click();
  await page.waitForURL(/after=/);
  await page.getByText(first, { exact: true }).waitFor({ state: "detached" });
  const second = await idOfFirst();
  await page.reload();
  await loaded(page);
  assert.equal(await idOfFirst(), second);
  await page.goBack();
  await page.getByText(first, { exact: true }).waitFor();
});

test("finds an account by its owner, and says what to do if there is none", async (visit) => {
  const { page } = visit;
  await open(visit, "/accounts");
  await page.getByRole("searchbox").fill("lovelace");
  await page.keyboard.press("Enter");
  // The list of all accounts has the link too, and a click is lost when that list is replaced.
  const rows = page.getByRole("region", { name: "Accounts" }).getByRole("row");
  await rows.nth(2).waitFor({ state: "detached" });
  await page.getByRole("link", { name: "Ada Lovelace", exact: true }).click();
  await page.getByRole("heading", { name: "Ada Lovelace", exact: true }).waitFor();
  await page.getByText("Pays by invoice, cost centre 4711.").waitFor();
  await page.goBack();
  await page.getByRole("searchbox").fill("nobody at all");
  await page.keyboard.press("Enter");
  await page.getByText("No account fits this search.").waitFor();
  await page.getByRole("link", { name: "Show all accounts" }).click();
  await page.getByRole("link", { name: "Ada Lovelace", exact: true }).waitFor();
});

test("what is typed into a filter stays when the list is loaded meanwhile", async (visit) => {
  const { page } = visit;
  await open(visit, "/accounts");
  const held = Promise.withResolvers<void>();
  await page.route(/low_balance=true/, async (route) => {
    await held.promise;
    await route.continue();
  });
  await page.getByLabel("almost used up").check();
  await page.getByRole("searchbox").fill("lovelace");
  const loading = page.waitForResponse(/low_balance=true/);
  held.resolve();
  await loading;
  await page.getByText("No account fits this search.").waitFor();
  assert.equal(await page.getByRole("searchbox").inputValue(), "lovelace");
  await page.keyboard.press("Enter");
  await page.waitForURL(/search=lovelace/);
});

releaseTest("suspends an account, whose key is then refused, and resumes it", async (visit) => {
  const { page, service } = visit;
  await service.call("POST", "/admin/accounts", { id: "paused", plan: "student" });
  const { key } = await service.call("POST", "/admin/accounts/paused/keys", { operation_id: "key-paused" });
  const balance = async () =>
    (await fetch(`${service.apiUrl}/v1/balance`, { headers: { authorization: `Bearer ${String(key)}` } }))
      .status;
  const ask = async () =>
    (
      await fetch(`${service.apiUrl}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${String(key)}`, "content-type": "application/json" },
        body: JSON.stringify({
          model: "tutor-small",
          messages: [{ role: "user", content: "Hi" }],
          max_tokens: 1,
        }),
      })
    ).status;
  assert.equal(await balance(), 200);
  assert.equal(await ask(), 200);
  await open(visit, "/accounts/paused");
  await choose(page, "Suspend");
  await page.getByRole("button", { name: "Suspend the account" }).click();
  await page.getByText("This account is suspended").waitFor();
  assert.equal(await ask(), 403);
  await choose(page, "Resume");
  await page.getByRole("button", { name: "Resume the account" }).click();
  await page.getByText("This account is suspended").waitFor({ state: "detached" });
  assert.equal(await ask(), 200);
});

test("receipts show the last 30 days, the whole of time if asked, and lead to their requests", async (visit) => {
  const { page, service } = visit;
  const query = "account=ada&order=newest&limit=500";
  const { data } = await service.call("GET", `/admin/usage?${query}`);
  const receipts: { request_id: string; finished_at: string }[] = Object(data);
  const newest = receipts[0];
  assert.ok(newest !== undefined);
  await open(visit, "/accounts/ada/receipts");
  await page.getByRole("button", { name: "30 days", pressed: true }).waitFor();
  const first = new Date(Date.now() - 29 * 86_400_000).toISOString().slice(0, 10);
  assert.equal(await page.getByLabel("From").inputValue(), first);
  const rows = page.locator("tbody tr");
  const recent = receipts.filter(({ finished_at }) => finished_at >= first);
  await rows.first().waitFor();
  assert.equal(await rows.count(), Math.min(100, recent.length));
  await page.getByRole("button", { name: "All", exact: true }).click();
  await page.waitForURL(/from=all/);
  await page.getByRole("button", { name: "All", exact: true, pressed: true }).waitFor();
  assert.equal(await page.getByLabel("From").inputValue(), "");
  // Nothing is in this period, and the page says how to go on.
  await open(visit, "/accounts/ada/receipts?from=2020-01-01&to=2020-02-01");
  await page.getByText("No request has finished in this selection.").waitFor();
  await page.getByRole("link", { name: "Show all requests" }).click();
  await page.locator(`a[href$="${newest.request_id}"]`).click();
  await page.getByRole("heading", { name: /^Request of / }).waitFor();
  assert.match(page.url(), new RegExp(`/requests/${newest.request_id}$`));
});

releaseTest("exports the usage of each account in a period as the API returns it", async (visit) => {
  const { page, service } = visit;
  await open(visit, "/usage?by=account");
  await page.getByRole("table", { name: "Usage by account" }).getByText("Ada Lovelace").waitFor();
  const saving = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export CSV" }).click();
  const saved = await saving;
  const csv = readFileSync(await saved.path(), "utf8");
  const from = await page.getByLabel("From").inputValue();
  const to = await page.getByLabel("to", { exact: true }).inputValue();
  // The name of the file has the days that the page shows.
  assert.equal(saved.suggestedFilename(), `usage-account-${from}-${to}.csv`);
  const until = new Date(Date.parse(to) + 86_400_000).toISOString().slice(0, 10);
  const response = await fetch(
    `${service.url}/admin/usage/sums?by=account&from=${from}&to=${until}&format=csv`,
    { headers: { authorization: `Bearer ${service.token}` } },
  );
  const lines = (text: string) => text.trim().split(/\r?\n/).sort();
  assert.deepEqual(lines(csv), lines(await response.text()));
  assert.ok(lines(csv).length > 5, csv);
});

test("a whole task by keyboard alone: find an account and top it up", async (visit) => {
  const { page, service } = visit;
  await open(visit, "/accounts");
  const focused = () =>
    page.evaluate("document.activeElement?.textContent?.trim() || document.activeElement?.id");
  const tabTo = async (text: string) => {
    for (let presses = 0; presses < 60; presses += 1) {
      if ((await focused()) === text) return;
      await page.keyboard.press("Tab");
    }
    assert.fail(`Tab does not reach ${text}`);
  };
  await tabTo("search");
  await page.keyboard.type("lin.meier");
  await page.keyboard.press("Enter");
  await page.waitForURL(/search=lin/);
  await page.getByRole("link", { name: "Lin Meier", exact: true }).waitFor();
  await tabTo("Lin Meier");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Lin Meier", exact: true }).waitFor();
  await tabTo("Top up");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  // The focus returns to the button that opened the dialog.
  await page.waitForFunction("document.activeElement?.textContent?.trim() === 'Top up'");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.type("75");
  await page.keyboard.press("Enter");
  await page.getByText("75 credits added to lin.").waitFor();
  const { data } = await service.call("GET", "/admin/accounts/lin/journal?limit=500");
  assert.ok(Array.isArray(data));
  assert.equal(data.at(-1)?.amount_micro, 75_000_000);
});
