/** Pages that update by themselves: what they show, when they stop, and what stays untouched. */
import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { browserTests, type ConsoleService } from "../fixtures/browser.ts";
import {
  assertAccessible,
  choose,
  confirmed,
  endSession,
  enterToken,
  open,
  setHidden,
  submit,
} from "../fixtures/console.ts";
import { openStream } from "../fixtures/http-stream.ts";
import { query } from "../fixtures/ledger-file.ts";
import { endless } from "../fixtures/running-requests.ts";
import { ofRelease } from "../fixtures/thorough.ts";
import { until } from "../fixtures/until.ts";

const test = browserTests();
const releaseTest = ofRelease(test);

/** The number with this name on the overview. */
function figure(page: Page, name: string) {
  const title = page.getByText(name, { exact: true });
  return page.locator(".figure").filter({ has: title }).locator("strong");
}

/** Waits until it shows this text. */
async function shows(page: Page, name: string, text: string): Promise<void> {
  await figure(page, name).getByText(text, { exact: true }).waitFor();
}

/** Counts how often the page asks for its state. */
function countReads(page: Page): () => number {
  let count = 0;
  page.on("request", (request) => {
    if (/\/(overview|live)$/.test(request.url())) count += 1;
  });
  return () => count;
}

async function isReady(service: ConsoleService): Promise<void> {
  await until("the model is loaded", async () => (await fetch(`${service.url}/readyz`)).ok);
}

test("the overview counts running and finished requests without a click, and moves nothing", async (visit) => {
  const { page, service } = visit;
  await isReady(service);
  await open(visit, "");
  await page.getByText("live", { exact: true }).waitFor();
  await page.getByText("0 running, 0 waiting").waitFor();
  // The first snapshots come without the database if it takes longer than half a second.
  await shows(page, "Requests today", "0");
  const heading = page.getByRole("heading", { name: /Accounts with the highest cost/ });
  const link = page.getByRole("link", { name: "All of them" });
  await link.focus();
  // On the page: when the focus scrolls, the browser rounds the position a moment later.
  const place = (): Promise<number> =>
    heading.evaluate((shown) => shown.getBoundingClientRect().y + shown.ownerDocument.defaultView.scrollY);
  const before = await place();
  using stream = await openStream({ url: service.apiUrl, key: service.key, ...endless });
  await page.getByText("1 running, 0 waiting").waitFor();
  const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "default" }) });
  await row.getByText("running", { exact: true }).waitFor();
  assert.equal(await place(), before, "the page moved");
  stream.abort();
  await page.getByText("0 running, 0 waiting").waitFor();
  await shows(page, "Requests today", "1");
  const [charge] = query(service.folder, "select cost from charge");
  const credits = await page
    .locator(".figure", { hasText: "Requests today" })
    .locator("[title]")
    .getAttribute("title");
  assert.equal(Math.round(Number(credits?.replace(/,| credits/g, "")) * 1_000_000), Number(charge?.cost));
  assert.equal(await place(), before, "the page moved");
  assert.equal(await page.evaluate("document.activeElement.innerText"), "All of them");
  await assertAccessible(page);
});

test("screen readers hear of states, and of no number", async (visit) => {
  const { page } = visit;
  await open(visit, "");
  await page.getByText("live", { exact: true }).waitFor();
  const live = page.locator("[aria-live], [role=status], [role=alert], [role=log]");
  const texts = await live.allInnerTexts();
  assert.ok(texts.includes("live"), texts.join());
  for (const text of texts) assert.doesNotMatch(text, /\d/);
});

releaseTest("an account's page shows its balance and requests while an answer streams", async (visit) => {
  const { page, service } = visit;
  await isReady(service);
  await open(visit, "/accounts/default");
  await page.getByText("Nothing runs now.").waitFor();
  const before = await figure(page, "Credits left").innerText();
  using stream = await openStream({ url: service.apiUrl, key: service.key, ...endless });
  const stop = page.getByRole("button", { name: `Stop the request ${stream.requestId}` });
  await stop.waitFor();
  await figure(page, "Held credits").getByText("0", { exact: true }).waitFor({ state: "detached" });
  stream.abort();
  await stop.waitFor({ state: "detached" });
  await shows(page, "Held credits", "0");
  await figure(page, "Credits left").getByText(before, { exact: true }).waitFor({ state: "detached" });
  // A change by somebody else.
  const body = { payment_id: "live-1", credits: 777 };
  await service.call("POST", "/admin/accounts/default/topups", body);
  await shows(page, "Additional credits", "777");
});

test(
  "a hidden page asks for nothing, and is up to date when it is shown again",
  async (visit) => {
    const { page, service } = visit;
    await isReady(service);
    const reads = countReads(page);
    await page.clock.install();
    await open(visit, "/accounts/default");
    await page.getByText("live", { exact: true }).waitFor();
    await setHidden(page, true);
    const before = reads();
    await page.clock.runFor(60_000);
    assert.equal(reads(), before);
    await service.call("POST", "/admin/accounts/default/topups", {
      payment_id: "hidden-1",
      credits: 100_000,
    });
    await setHidden(page, false);
    await figure(page, "Additional credits").getByText(/^100,/).waitFor();
    assert.equal(reads(), before + 1);
  },
  { isAlone: true },
);

test(
  "a page asks every ten seconds, and every two while something runs",
  async (visit) => {
    const { page, service } = visit;
    await isReady(service);
    const reads = countReads(page);
    await page.clock.install();
    await open(visit, "/accounts/default");
    await page.getByText("Nothing runs now.").waitFor();
    const [before] = [reads()];
    await page.clock.runFor(9_000);
    assert.equal(reads(), before);
    using stream = await openStream({ url: service.apiUrl, key: service.key, ...endless });
    await page.clock.runFor(1_000);
    await page.getByRole("button", { name: `Stop the request ${stream.requestId}` }).waitFor();
    const running = reads();
    await page.clock.runFor(2_000);
    await until("it has asked again", () => reads() === running + 1);
    stream.abort();
  },
  { isAlone: true },
);

test(
  "a page whose service is away says so, and goes on when it is back",
  async (visit) => {
    const { page, expects } = visit;
    await page.clock.install();
    await open(visit, "");
    await page.getByText("live", { exact: true }).waitFor();
    expects("failed GET /admin/overview");
    await page.route("**/admin/overview", (route) => route.abort());
    await page.clock.runFor(10_000);
    await page.getByText(/^as of /).waitFor();
    await page.unroute("**/admin/overview");
    await page.clock.runFor(10_000);
    await page.getByText("live", { exact: true }).waitFor();
  },
  { isAlone: true },
);

test(
  "a request without an answer is given up, and the page asks again",
  async (visit) => {
    const { page } = visit;
    await page.clock.install();
    // The clock of a page moves no timeout of a signal.
    await page.addInitScript(`AbortSignal.timeout = (ms) => {
      const aborter = new AbortController();
      setTimeout(() => aborter.abort(), ms);
      return aborter.signal;
    }`);
    await open(visit, "");
    await page.getByText("live", { exact: true }).waitFor();
    let hangs = 0;
    await page.route("**/admin/overview", async (route) => {
      hangs += 1;
      if (hangs > 1) await route.continue();
    });
    await page.clock.runFor(10_000);
    await until("it has asked", () => hangs > 0);
    await page.clock.runFor(3_000);
    await page.getByText(/^as of /).waitFor();
    await page.clock.runFor(50_000);
    await page.getByText("live", { exact: true }).waitFor();
  },
  { isAlone: true },
);

test(
  "an account's page asks at once after a change of its operator",
  async (visit) => {
    const { page } = visit;
    await page.clock.install();
    await open(visit, "/accounts/default");
    await page.getByText("live", { exact: true }).waitFor();
    await page.clock.pauseAt(Date.now() + 60_000);
    await page.getByText("live", { exact: true }).waitFor();
    const before = await figure(page, "Additional credits").innerText();
    await choose(page, "Adjust credits");
    await page.getByRole("dialog").getByLabel("Credits").fill("4321");
    await page.getByRole("dialog").getByLabel("Reason").fill("Sorry");
    await submit(page);
    await page.getByRole("button", { name: "Adjust the credits" }).click();
    await confirmed(page, "4,321 promotional credits given to default.");
    // Frames are part of the clock, and the next look is ten seconds away.
    await page.clock.runFor(1_000);
    await figure(page, "Additional credits")
      .getByText(before, { exact: true })
      .waitFor({ state: "detached" });
  },
  { isAlone: true },
);

test(
  "a live page ends with its session, and begins with the next one",
  async (visit) => {
    const { page, service } = visit;
    const reads = countReads(page);
    await page.clock.install();
    await open(visit, "");
    await page.getByText("live", { exact: true }).waitFor();
    await endSession(visit);
    visit.expects("401 GET /admin/overview");
    await page.clock.runFor(10_000);
    await page.getByRole("heading", { name: "Sign in again" }).waitFor();
    const before = reads();
    await page.clock.runFor(60_000);
    assert.equal(reads(), before, "nothing is tried without a session");
    await enterToken({ page, service });
    await page.getByText("live", { exact: true }).waitFor();
  },
  { isAlone: true },
);
