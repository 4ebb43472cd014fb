/** Jobs on the pages of the console: all that run, and one that fails and works again. */
import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { type Answer, browserTests, type Visit } from "../fixtures/browser.ts";
import { assertAccessible, loaded, open } from "../fixtures/console.ts";
import { textOf } from "../fixtures/deploy.ts";
import { change } from "../fixtures/ledger-file.ts";
import { ofRelease } from "../fixtures/thorough.ts";
import { until } from "../fixtures/until.ts";

const test = browserTests({ pages: "both" });

function jobsOf(page: Page) {
  const card = page.locator(".card", { has: page.getByRole("heading", { name: "Jobs", exact: true }) });
  return card.getByRole("row").filter({ has: page.getByRole("cell") });
}

function jobOf(page: Page, name: string) {
  return jobsOf(page).filter({ hasText: name });
}

/** Waits for the job in the API, then loads Health again until it shows the job in this state. */
async function becomes(
  { page, service }: Pick<Visit, "page" | "service">,
  name: string,
  apiState: string,
  state: RegExp,
): Promise<void> {
  await until(`${name} is ${apiState}`, async () => {
    const { data } = await service.call("GET", "/admin/jobs?limit=500");
    const [job] = Object(data).filter((each: Answer) => each.name === name.replaceAll(" ", "_"));
    return job.state === apiState;
  });
  await until(`${name} is ${state}`, async () => {
    await page.getByRole("button", { name: "Refresh" }).click();
    await loaded(page);
    return state.test(await jobOf(page, name).innerText());
  });
}

test("Health lists each documented job with its interval and state", async (visit) => {
  const { page } = visit;
  await open(visit, "/health");
  const names = await jobsOf(page).locator("td:first-child, th[scope=row]").allInnerTexts();
  const documented = textOf("docs/operating/jobs.md")
    .split("\n")
    .flatMap((line) => [...(/^\| (`\w+`(?:, `\w+`)*) \| [\d.]+ s \|/.exec(line)?.slice(1) ?? [])])
    .flatMap((cell) => [...cell.matchAll(/\w+/g)].map(([name]) => name.replaceAll("_", " ")));
  assert.deepEqual(names.toSorted(), documented.toSorted());
  await becomes(visit, "end expired holds", "ok", /\b10 s\s+ok\s/);
  await assertAccessible(page);
});

// test/http/operator-jobs.test.ts has jobs that fail.
ofRelease(test)(
  "the overview says that a job fails, and Health has its error, until it works again",
  async (visit) => {
    const { page, service, expects } = visit;
    await open(visit, "");
    await page.getByText("Nothing needs your attention.").waitFor();
    expects(/^log: .*the plans could not be read/);
    change(service.folder, "alter table plan_file rename to moved");
    await page.getByText('The job "watch plans" is failing.').waitFor();
    await page.getByRole("link", { name: "Health" }).first().click();
    await becomes(visit, "watch plans", "failing", /failing since .*no such table: main.plan_file/s);
    await assertAccessible(page);
    change(service.folder, "alter table moved rename to plan_file");
    await becomes(visit, "watch plans", "ok", /\sok\s.*no such table: main.plan_file/s);
    await page.getByRole("link", { name: "Overview" }).first().click();
    await page.getByText("Nothing needs your attention.").waitFor();
  },
);
