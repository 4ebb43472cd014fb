/** Open pages of console and portal while the service stops and starts again. */
import assert from "node:assert/strict";
import { browserTests } from "../fixtures/browser.ts";
import { confirmed, loaded, open, submit } from "../fixtures/console.ts";
import { startOwnTime } from "../fixtures/own-time.ts";
import { keyOf, openPortal } from "../fixtures/portal-pages.ts";

const test = browserTests({ pages: "both" });

/** An idle service stops in less than a second. A stream that is waited for takes 30 s. */
const stopMsMax = 5_000;

test("open pages delay no stop, say that the service is away, and go on by themselves", async (visit) => {
  const { page, context, service, expects } = visit;
  const { secret } = await keyOf(service, "default", { name: "open", portal: "account" });
  await open(visit, "");
  const home = await context.newPage();
  await openPortal({ context, page: home, service }, "/", secret);
  for (const each of [page, home]) await each.getByText("live", { exact: true }).waitFor();
  const keys = await context.newPage();
  await openPortal({ context, page: keys, service }, "/keys", secret);
  await keys.getByRole("button", { name: "Create a key" }).click();
  const portalForm = keys.getByRole("dialog");
  await portalForm.getByLabel("Name").fill("typed before the stop");
  const accounts = await context.newPage();
  await open({ context, page: accounts, service }, "/accounts/default");
  await accounts.getByRole("button", { name: "Top up" }).click();
  const consoleForm = accounts.getByRole("dialog");
  await consoleForm.getByLabel("Credits").fill("70");

  const today = page.locator(".figure").filter({ hasText: "Requests today" }).locator("strong");
  const requests = await today.innerText();
  expects(/^failed GET \/(api\/live|admin\/(overview|accounts\/default\/live))/);
  const passedMs = startOwnTime();
  await service.stop();
  const stopMs = passedMs();
  assert.ok(stopMs < stopMsMax, `the service stopped in ${Math.round(stopMs)} ms`);
  for (const each of [page, home]) await each.getByText(/^as of \d{4}-\d\d-\d\d/).waitFor();
  assert.equal(await today.innerText(), requests, "the numbers stay");
  expects("failed POST /api/keys", /^failed POST \/admin\/accounts\/default\/topups/);
  for (const each of [keys, accounts]) {
    await submit(each);
    await each.getByRole("dialog").getByText("The service did not respond.").waitFor();
  }
  assert.equal(await portalForm.getByLabel("Name").inputValue(), "typed before the stop");
  assert.equal(await consoleForm.getByLabel("Credits").inputValue(), "70");
  // A page that is opened meanwhile.
  expects("failed GET /api/usage", "failed GET /api/usage/hours", "failed GET /api/keys");
  expects("failed GET /api/account");
  await home.getByRole("link", { name: "Usage" }).click();
  await home.getByText("The service did not respond.").first().waitFor();

  await service.start();
  await page.getByText("live", { exact: true }).waitFor();
  await home.getByText("The last 24 hours (UTC)").waitFor();
  await home.getByText("The service did not respond.").first().waitFor({ state: "detached" });
  await loaded(home);
  await submit(accounts);
  await confirmed(accounts, /credits/);
  // The session lasts, too.
  await accounts.reload();
  await loaded(accounts);
  await accounts.getByText("70", { exact: true }).first().waitFor();
  await submit(keys);
  await portalForm.getByRole("button", { name: "Done" }).click();
  await keys.getByRole("row").filter({ hasText: "typed before the stop" }).waitFor();
  const { data } = await service.call("GET", "/admin/accounts/default/journal?limit=500");
  const topups = Object(data).filter(({ kind }: { kind: string }) => kind === "payment");
  assert.equal(topups.length, 1);
});
