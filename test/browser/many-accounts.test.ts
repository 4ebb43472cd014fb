/** A class from a CSV file, and top-ups for all at once, as a person does it in the console. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import type { Page } from "playwright-core";
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, assertFits, dialogClosed, open, submit } from "../fixtures/console.ts";

const test = browserTests({ pages: "both" });

const students = Array.from({ length: 12 }, (_, n) => `pupil${String(n).padStart(2, "0")}`);
const csv = [
  "account\tplan\towner\temail",
  ...students.map((id) => `${id}\tstarter\tOwner of ${id}\t${id}@x.example`),
  "Pupil\tstarter\t\t",
].join("\n");

/** The button of the dialog, when it can be pressed. */
async function press(page: Page, name: string): Promise<void> {
  await page.getByRole("dialog").getByRole("button", { name, exact: true }).click();
}

test("a class is pasted, previewed by row and imported; its links are saved, and its dots follow", async (visit) => {
  const { page, service, expects } = visit;
  await service.call("POST", "/admin/accounts", { id: "pupil00", plan: "starter", owner: "Before" });
  await open(visit, "/accounts?search=pupil");
  await page.getByRole("button", { name: "Import", exact: true }).click();
  const dialog = page.getByRole("dialog");
  expects("400 POST /admin/accounts/import");
  await dialog.getByLabel("CSV", { exact: true }).fill("account,plans\nx,starter");
  await submit(page);
  await dialog.getByText(/line 1: There is no column "plans"/).waitFor();
  const file = { name: "class.csv", mimeType: "text/csv", buffer: Buffer.from(csv) };
  await dialog.getByLabel("File for CSV").setInputFiles(file);
  await dialog.getByLabel("Invitations").selectOption("link");
  await submit(page);
  await dialog.getByText("Nothing has changed yet. Accounts: 1 unchanged, 11 opened, 1 refused.").waitFor();
  await dialog.getByText("owner stays Before, and the row has Owner of pupil00").waitFor();
  await dialog.getByText(/^account must be/).waitFor();
  await assertAccessible(page);
  await press(page, "Import");
  await dialog.getByText("Accounts: 1 unchanged, 11 opened, 1 refused.").waitFor();
  const saved = page.waitForEvent("download");
  await press(page, "Save the links");
  const lines = readFileSync(await (await saved).path(), "utf8")
    .trim()
    .split("\r\n");
  assert.deepEqual([lines.length, lines[0]], [12, "account,email,link"]);
  await press(page, "Done");
  await dialogClosed(page);
  const invited = page.getByRole("cell", { name: "invited" });
  await invited.nth(10).waitFor();
  assert.equal(await invited.count(), 11);

  const url = lines.find((line) => line.startsWith("pupil05,"))?.split(",")[2] ?? "";
  const other = await visit.context.newPage();
  await other.goto(url);
  await other.getByRole("button", { name: "Open my account" }).click();
  await other.getByRole("heading", { name: "Balance" }).waitFor();
  await other.close();
  await page.reload();
  await page
    .getByRole("row", { name: /pupil05/ })
    .getByText("joined")
    .waitFor();
  await page.getByLabel("not come yet").check();
  await page.getByRole("link", { name: "Owner of pupil05" }).waitFor({ state: "hidden" });
});

test("those who are chosen are topped up once, in spite of a stop, and the others keep what they have", async (visit) => {
  const { page, service, expects } = visit;
  const ids = Array.from({ length: 12 }, (_, n) => `team${String(n).padStart(2, "0")}`);
  for (const id of ids) await service.call("POST", "/admin/accounts", { id, plan: "starter" });
  await service.call("POST", "/admin/accounts/team03/state", { operation_id: "c", state: "closed" });
  await open(visit, "/accounts?search=team");
  await page.getByLabel("Choose team00").check();
  await page.getByLabel("Choose team10").click({ modifiers: ["Shift"] });
  const bar = page.getByRole("region", { name: "Chosen rows" });
  await bar.getByText("11 chosen").waitFor();
  await page.getByLabel("Choose team01").uncheck();
  await bar.getByText("10 chosen").waitFor();
  await assertAccessible(page);
  await assertFits(page);
  await bar.getByRole("button", { name: "Top up" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("heading", { name: "Top up 10 accounts" }).waitFor();
  await dialog.getByLabel("Credits for each").fill("500");
  await dialog.getByText("As a command").click();
  await dialog.getByText("It changes 500 rows at most. If the answer has a next, send it again").waitFor();
  await submit(page);
  await dialog.getByText("Accounts: 9 updated, 1 refused. Credits in all: 4,500.").waitFor();
  await dialog.getByText("Account team03 is closed").waitFor();
  // The answer of the first rows is lost: they have their credits, and are asked for again.
  const path = "**/admin/accounts/topups";
  await page.route(path, async (route) => {
    await route.fetch();
    await route.abort();
  });
  expects("failed POST /admin/accounts/topups");
  await press(page, "Add the credits");
  await dialog.getByText(/The service did not respond/).waitFor();
  await page.unroute(path);
  await press(page, "Go on");
  await dialog.getByText("Accounts: 4 unchanged, 1 refused, 5 updated. Credits in all: 2,500.").waitFor();
  await press(page, "Done");
  await dialogClosed(page);
  for (const id of ids) {
    const balance = await service.call("GET", `/admin/accounts/${id}/balance`);
    const expected = ["team01", "team03", "team11"].includes(id) ? 0 : 500;
    assert.partialDeepStrictEqual(balance, { balances: { additional: { credits: expected } } }, id);
  }
  await bar.waitFor({ state: "hidden" });
});
