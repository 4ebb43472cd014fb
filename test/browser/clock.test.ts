/** A clock that jumps, as the console shows it, and the operator who accepts it. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, assertRefused, confirmed, loaded, open, submit } from "../fixtures/console.ts";
import { query } from "../fixtures/ledger-file.ts";
import { hour } from "../fixtures/times.ts";

const setAhead = (folder: string, ms: number) => writeFileSync(path.join(folder, "clock-ahead"), String(ms));

const test = browserTests({
  preload: fileURLToPath(new URL("../fixtures/faked-clock.ts", import.meta.url)),
  fill: async (folder) => setAhead(folder, 0),
});

test("a clock that jumps is reported at once, and accepted with a name", async (visit) => {
  const { page, service, expects } = visit;
  expects(/^log: .*the clock is wrong/);
  await open(visit, "");
  await page.getByText("the clock is trusted").waitFor();
  setAhead(service.folder, hour);
  await page.getByText("Something needs your attention.").waitFor();
  await page.getByRole("link", { name: "Health" }).first().click();
  await loaded(page);
  const accept = page.getByRole("button", { name: "Accept the clock" });
  await accept.click();
  await assertAccessible(page);
  const dialog = page.getByRole("dialog");
  await submit(page);
  await assertRefused(dialog.getByLabel("The true time"), /The true time .UTC. is missing/, {});
  const time = dialog.getByLabel("The true time");
  const trueTime = (aheadMs: number) => new Date(Date.now() + aheadMs).toISOString().slice(0, 16);
  await time.fill(trueTime(0));
  expects("409 POST /admin/clock/accept");
  await submit(page);
  await dialog
    .getByRole("alert")
    .filter({ hasText: /more than a minute/ })
    .waitFor();
  // The clock is right again before it is accepted.
  setAhead(service.folder, 0);
  expects("409 POST /admin/clock/accept");
  await submit(page);
  await dialog
    .getByRole("alert")
    .filter({ hasText: /trusted/ })
    .waitFor();
  setAhead(service.folder, hour);
  await time.fill(trueTime(hour));
  await submit(page);
  await confirmed(page, /The clock is accepted as of/);
  await accept.waitFor({ state: "detached" });
  await page.getByText("Trusted").locator("..").getByText("yes", { exact: true }).waitFor();
  const [row] = query(service.folder, "select * from clock_accept");
  assert.equal(row?.by, "owner", JSON.stringify(row));
});
