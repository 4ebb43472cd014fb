/** Reloading the configuration and applying its plans from the console, and the recorded audit. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { browserTests, type ConsoleService, type Visit } from "../fixtures/browser.ts";
import {
  assertAccessible,
  assertFits,
  confirmed,
  dialogClosed,
  open,
  submit,
  twoPlans,
} from "../fixtures/console.ts";
import { change } from "../fixtures/ledger-file.ts";

const { configuration } = twoPlans;
const fileOf = ({ folder }: ConsoleService) => path.join(folder, "inkwell.yaml");

const test = browserTests(twoPlans);

/** Opens the dialog of the reload, and lets it show what would change. */
async function look({ page }: Visit): Promise<void> {
  await page.getByRole("button", { name: "Reload the configuration" }).click();
  await page.getByRole("dialog").waitFor();
  await submit(page);
}

/** Confirms the reload. */
async function reload({ page }: Visit): Promise<void> {
  await page.getByRole("button", { name: "Reload", exact: true }).click();
  await confirmed(page, "The configuration is reloaded.");
  await dialogClosed(page);
}

/** The credits of a plan's newest version. */
async function creditsOf(service: ConsoleService, plan: string): Promise<unknown> {
  const { data } = await service.call("GET", "/admin/plans");
  assert.ok(Array.isArray(data));
  return data.find(({ id }) => id === plan)?.versions[0]?.base?.credits;
}

test("a reload of a wrong file says where the error is, and changes nothing", async (visit) => {
  const { page, service, expects } = visit;
  writeFileSync(fileOf(service), configuration.replace("credits: 500", "credits: lots"));
  await open(visit, "/plans");
  expects("422 GET /admin/reload");
  await look(visit);
  const alert = page.getByRole("alert").filter({ hasText: "inkwell.yaml:2" });
  await alert.waitFor();
  assert.match(await alert.innerText(), /plans\.student\.base\.credits/);
  await assertAccessible(page);
  assert.equal(await creditsOf(service, "student"), 500);
  // The remedy: correct the file, and press the same button.
  writeFileSync(fileOf(service), configuration);
  await submit(page);
  await page.getByText("The configuration has not changed.").waitFor();
  await reload(visit);
});

test("a reload applies a changed plan and a new one, and shows what has changed", async (visit) => {
  const { page, service } = visit;
  await open(visit, "/plans");
  const changed = configuration
    .replace("credits: 500", "credits: 700")
    .replace(
      "models:",
      "  lab: { base: { credits: 9000, every: P1W }, overage: { credits: 0, every: P1M } }\nmodels:",
    );
  writeFileSync(fileOf(service), changed);
  await look(visit);
  const rows = page.getByRole("region", { name: "Settings before and after" }).getByRole("row");
  await rows.getByText("plans.student.base.credits").waitFor();
  const shown = (await rows.allInnerTexts()).map((row) => row.replaceAll(/\s+/g, " "));
  assert.ok(
    shown.some((row) => /^plans\.lab . 9,000 credits every P1W/.test(row)),
    shown.join(),
  );
  assert.ok(shown.includes("plans.student.base.credits 500 700"), shown.join());
  await assertAccessible(page);
  assert.equal(await creditsOf(service, "student"), 500, "looking changes nothing");
  await reload(visit);
  await page.getByRole("heading", { name: "lab" }).waitFor();
  const versions = page.getByRole("region", { name: "Versions of student, newest first" });
  assert.match(await versions.getByRole("row").nth(1).innerText(), /^2\s.*700/s);
  assert.match(await versions.getByRole("row").nth(2).innerText(), /^1\s.*500/s);
  assert.equal(await creditsOf(service, "student"), 700);
});

test("plans that newer ones replaced are applied only on purpose", async (visit) => {
  const { page, service } = visit;
  const current = readFileSync(fileOf(service), "utf8");
  writeFileSync(fileOf(service), current.replace("credits: 700", "credits: 800"));
  await service.call("POST", "/admin/reload");
  assert.equal(await creditsOf(service, "student"), 800);
  writeFileSync(fileOf(service), current);
  await open(visit, "/plans");
  await look(visit);
  await page
    .getByRole("dialog")
    .getByText(/inkwell plans apply/)
    .waitFor();
  await reload(visit);
  assert.equal(await creditsOf(service, "student"), 800);
  await page.getByRole("row", { name: "plans.student.base.credits 800 700" }).waitFor();
  await assertAccessible(page);
  const apply = page.getByRole("button", { name: "Apply the plans of the configuration" });
  await apply.click();
  await page.getByRole("dialog").getByRole("row").filter({ hasText: "plans.student" }).waitFor();
  assert.equal(await creditsOf(service, "student"), 800);
  await submit(page);
  await dialogClosed(page);
  await apply.waitFor({ state: "detached" });
  assert.equal(await creditsOf(service, "student"), 700);
});

test("a draft of a plan shows what changes, and its lines are a plan of the file", async (visit) => {
  const { page, service } = visit;
  await service.call("POST", "/admin/accounts", { id: "ada", plan: "team" });
  await open(visit, "/plans");
  await page.getByRole("button", { name: "Change this plan: team" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/^\d+ accounts? (is|are) on this plan\.$/).waitFor();
  assert.equal(await dialog.locator("[name='base.credits']").inputValue(), "20000");
  await dialog.locator("[name='base.credits']").fill("25000");
  await dialog.getByLabel("Base credits refill every").selectOption({ label: "week" });
  const cap = (n: number) => dialog.getByRole("group", { name: `Spending caps, number ${n}` });
  for (const [n, credits] of ["900", "200", "7"].entries()) {
    await dialog.getByRole("button", { name: "Add one" }).click();
    await cap(n + 1)
      .getByLabel("Credits")
      .fill(credits);
  }
  await cap(2).getByLabel("In each").selectOption({ label: "day" });
  await cap(2).getByLabel("Refill").selectOption("calendar");
  await cap(2).getByLabel("writer").check();
  const another = cap(1).getByLabel("Another of Models");
  await another.fill("wr*");
  await another.press("Tab");
  assert.equal(await cap(1).getByLabel("wr*", { exact: true }).isChecked(), true);
  await assertFits(page);
  await cap(3).getByLabel("Credits").fill("");
  await submit(page);
  await cap(3).getByText("Credits is missing.").waitFor();
  await cap(3).getByRole("button", { name: "Remove number 3" }).click();
  await dialog.getByText("1,000,000 / 1,000,000").first().waitFor();
  await dialog.getByRole("group", { name: "Models", exact: true }).last().getByLabel("tutor").check();
  await assertAccessible(page);
  await submit(page);
  await dialog.getByText(/^\d+ accounts? on the plan\. Limits, models/).waitFor();
  const rows = await dialog.getByRole("row").allInnerTexts();
  assert.ok(
    rows.some((row) => /^plans\.team\.base\.credits\s+20000\s+25000$/.test(row)),
    rows.join(),
  );
  await assertAccessible(page);
  await dialog.getByRole("button", { name: "Copy the lines" }).click();
  const lines: string = await page.evaluate("navigator.clipboard.readText()");
  await page.getByRole("button", { name: "Done" }).click();
  const file = readFileSync(fileOf(service), "utf8");
  writeFileSync(fileOf(service), file.replace(/^ {2}team:.*\n/m, lines));
  await service.call("POST", "/admin/reload");
  const { data } = await service.call("GET", "/admin/plans");
  assert.ok(Array.isArray(data));
  const [{ base, models, spending_caps: caps }] = data.find(({ id }) => id === "team").versions;
  assert.deepEqual([base.credits, base.every, models], [25_000, "P1W", ["tutor"]]);
  const shown = caps.map((each: typeof base) => [each.credits, each.every, each.align, each.models]);
  assert.deepEqual(shown, [
    [900, "PT5H", "opening", ["wr*"]],
    [200, "P1D", "calendar", ["writer"]],
  ]);
});

test("a draft of prices shows the last week at both prices", async (visit) => {
  const { page } = visit;
  await open(visit, "/health");
  await page.getByRole("button", { name: "Change its prices: tutor" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Answer").fill("3000000");
  await submit(page);
  await dialog
    .getByText(/^\d+ requests? of \d+ accounts? in the last 7 days: \d+ credits? at the present/)
    .waitFor();
  await dialog.getByText("price: { prompt: 1000000, completion: 3000000 }").waitFor();
  await assertAccessible(page);
  await page.getByRole("button", { name: "Done" }).click();
});

test("Health shows the recorded audit, and the overview warns of an unsound ledger", async (visit) => {
  const { page, service } = visit;
  const record = (problems: number, firstProblem = "") =>
    change(
      service.folder,
      "insert or replace into audit_record (id, checked_ms, journal_rows, problems, first_problem) values (1, ?, 1234, ?, nullif(?, ''))",
      Date.now(),
      problems,
      firstProblem,
    );
  await open(visit, "/health");
  await page.getByText("No audit is recorded.").waitFor();
  const refresh = page.getByRole("button", { name: "Refresh" });
  record(0);
  await refresh.click();
  await page.getByText(/^sound 1,234 journal entries checked /).waitFor();
  record(2, "every grant has its entry");
  await refresh.click();
  await page.getByText("2 rules are broken. The first one: every grant has its entry.").waitFor();
  await assertAccessible(page);
  await page.getByRole("link", { name: "Overview" }).first().click();
  await page.getByText("The last recorded audit found broken rules.").waitFor();
  change(service.folder, "delete from audit_record");
  await page.getByText("Nothing needs your attention.").waitFor();
});
