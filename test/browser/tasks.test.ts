/**
 * Eleven tasks as docs/operating/console-tasks.md describes them, in order and each from the URL
 * alone. The service has a month of data and thousands of accounts, and the default model if it is
 * on this machine. A test uses exactly the names of buttons and fields of its section.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import type { Locator, Page } from "playwright-core";
import { browserTests, type ConsoleService, type Visit } from "../fixtures/browser.ts";
import { assertAccessible, enterToken, loaded } from "../fixtures/console.ts";
import { type ChatStream, openStream } from "../fixtures/http-stream.ts";
import { assertSoundLedger } from "../fixtures/ledger-file.ts";
import { keyOf } from "../fixtures/portal-pages.ts";
import { monthOfData } from "../fixtures/realistic-ledger.ts";
import { endless } from "../fixtures/running-requests.ts";
import { ofRelease } from "../fixtures/thorough.ts";

const test = browserTests(monthOfData);
const model = "tutor-small";

const guide = readFileSync(path.join(import.meta.dirname, "../../docs/operating/console-tasks.md"), "utf8");

/** The names in bold type in a section of the guide, in order. */
function namesIn(section: string): string[] {
  const [, text] = guide.split(`\n## ${section}\n`);
  assert.ok(text !== undefined, `docs/operating/console-tasks.md has no section "${section}"`);
  const [steps = ""] = text.split("\n## ");
  return [...steps.matchAll(/\*\*(.+?)\*\*/g)].map(([, name = ""]) => name);
}

/** What a person does on a page. Each step is noted with the name that it has in the guide. */
class Steps {
  readonly taken: string[] = [];
  readonly #page: Page;

  constructor(page: Page) {
    this.#page = page;
  }

  /** The open form, or else the page. */
  get #place(): Locator {
    return this.#page.locator("dialog[open], body:not(:has(dialog[open]))");
  }

  /** Clicks the button, link or menu of this name, or the one given if its row tells it apart. */
  async click(name: string, target?: Locator): Promise<void> {
    this.taken.push(name);
    const options = { name, exact: true };
    const named = this.#place
      .getByRole("button", options)
      .or(this.#place.getByRole("link", options))
      .or(this.#place.locator("summary").getByText(name, { exact: true }));
    await (target ?? named).first().click();
  }

  /** A label can go on with a hint or the choices. */
  #field(label: string): Locator {
    this.taken.push(label);
    const labelled = this.#place.getByLabel(new RegExp(`^${label.replaceAll(/[()]/g, "\\$&")}`));
    return labelled.and(this.#page.locator("input, select, textarea"));
  }

  async fill(label: string, text: string): Promise<void> {
    await this.#field(label).fill(text);
  }

  async check(label: string): Promise<void> {
    await this.#field(label).check();
  }

  async choose(label: string, option: string): Promise<void> {
    await this.#field(label).selectOption({ label: option });
    this.taken.push(option);
  }

  /** Asserts that the page shows this, without a click. */
  async see(name: string, shown: Locator): Promise<void> {
    this.taken.push(name);
    await shown.first().waitFor();
  }
}

interface Task extends Visit {
  steps: Steps;
}

function task(name: string, begin: (visit: Visit) => Promise<void>, run: (task: Task) => Promise<void>) {
  test(name, async (visit) => {
    const steps = new Steps(visit.page);
    await begin(visit);
    await run({ ...visit, steps });
    assert.deepEqual(steps.taken, namesIn(name), "the steps and the guide");
  });
}

const releaseTask = ofRelease(task);

/** Signs in with the token, from the address of the listener. */
async function operator({ page, service }: Visit): Promise<void> {
  await page.goto(service.url);
  await enterToken({ page, service });
  await page.getByRole("navigation", { name: "Sections" }).waitFor();
}

const holder =
  (secret: () => string) =>
  async ({ page, service }: Visit): Promise<void> => {
    await page.goto(service.portalUrl);
    await page.getByLabel("API key").fill(secret());
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Balance" }).waitFor();
  };

/** Searches for an account, and opens it. */
async function find({ page, steps }: Task, text: string, owner: string): Promise<void> {
  await steps.click("Search");
  await page.getByRole("dialog").getByRole("combobox").fill(text);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: owner, exact: true, level: 1 }).waitFor();
}

/** Copies the secret that is shown once, and closes the form. */
async function copySecret({ page, steps }: Task): Promise<string> {
  await steps.click("Copy", page.getByRole("button", { name: "Copy the secret" }));
  await page.getByText("Copied.").waitFor();
  const secret: string = await page.evaluate("navigator.clipboard.readText()");
  await steps.click("Done");
  return secret;
}

async function balanceStatus({ apiUrl }: ConsoleService, key: string): Promise<number> {
  return (await fetch(`${apiUrl}/v1/balance`, { headers: { authorization: `Bearer ${key}` } })).status;
}

/** A request that nobody ends, of a program of ada. */
async function runaway({ service }: Visit): Promise<ChatStream> {
  const { secret } = await keyOf(service, "ada", { name: "a program" });
  return await openStream({
    url: service.apiUrl,
    key: secret,
    model: "writer",
    max_tokens: 3000,
    ...endless,
  });
}

/** The secret that the operator copies in the first task. */
let studentKey = "";

task("Give a new student 500 credits and a key", operator, async (task) => {
  const { page, service, steps } = task;
  await steps.click("Accounts");
  await steps.click("Open an account");
  await steps.fill("Account", "noor");
  await steps.choose("Plan", "student");
  await steps.fill("Owner", "Noor <b>Haddad</b>");
  await steps.click("Open the account");
  studentKey = await copySecret(task);
  await page.getByRole("heading", { name: "Noor <b>Haddad</b>", level: 1 }).waitFor();
  await steps.click("Top up");
  await steps.fill("Credits", "500");
  await steps.click("Add the credits");
  await page.getByText("500 credits added to noor.").waitFor();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(await balanceStatus(service, studentKey), 200);
  const { balances } = await service.call("GET", "/admin/accounts/noor/balance");
  assert.equal(Object(balances).additional.credits, 500);
});

releaseTask("Explain what an account was charged for yesterday", operator, async (task) => {
  const { page, service, steps } = task;
  await find(task, "lovelace", "Ada Lovelace");
  await steps.click("Receipts");
  await steps.click("Yesterday");
  await page.waitForURL(/from=/);
  await loaded(page);
  const rows = page.getByRole("region", { name: "Receipts" }).getByRole("row");
  const { searchParams } = new URL(page.url());
  const yesterday = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10);
  assert.equal(searchParams.get("from"), yesterday);
  const query = new URLSearchParams({
    account: "ada",
    from: searchParams.get("from") ?? "",
    to: searchParams.get("to") ?? "",
    order: "newest",
  });
  const { data } = await service.call("GET", `/admin/usage?${query}`);
  assert.ok(Array.isArray(data) && data.length > 0, "ada was charged yesterday");
  assert.equal((await rows.count()) - 1, Math.min(data.length, 100));
  // Keys have their names, as on their own page.
  await page
    .getByRole("cell", { name: /^(notebook|laptop)$/ })
    .first()
    .waitFor();
  const newest = await rows.nth(1).innerText();
  for (const shown of [data[0].model, data[0].prompt_tokens.toLocaleString("en-US")]) {
    assert.ok(newest.includes(shown), `${shown} in ${newest}`);
  }
  await rows.nth(1).locator(`a[href$="${data[0].request_id}"]`).waitFor();
  await rows
    .nth(1)
    .getByTitle(
      `${(data[0].cost_micro / 1_000_000).toLocaleString("en-US", { maximumFractionDigits: 6 })} credits`,
    )
    .waitFor();
});

task("Explain one request, and give its cost back", operator, async (task) => {
  const { page, service, steps } = task;
  const { data } = await service.call("GET", "/admin/usage?account=ada&order=newest&limit=100");
  const receipts: { request_id: string; cost_micro: number }[] = Object(data);
  const [receipt] = receipts.toSorted((one, other) => other.cost_micro - one.cost_micro);
  assert.ok(receipt !== undefined && receipt.cost_micro >= 1_000_000);
  await steps.click("Search");
  await page.getByRole("dialog").getByRole("combobox").fill(`chatcmpl-${receipt.request_id}`);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${service.url}/console/requests/${receipt.request_id}`);
  await page.getByRole("cell", { name: "Cost in credits" }).waitFor();
  await assertAccessible(page);
  await steps.click("Give credits for it");
  const credits = Math.floor(receipt.cost_micro / 1_000_000);
  assert.equal(await page.getByLabel("Credits", { exact: true }).inputValue(), String(credits));
  await steps.click("Preview");
  await steps.click("Adjust the credits");
  await page.getByText("credits were given back later.").waitFor();
  const after = await service.call("GET", `/admin/usage?request_id=${receipt.request_id}`);
  assert.equal(Object(after.data)[0].memo_micro, credits * 1_000_000);
});

releaseTask("Move a team to a bigger plan at its next refresh", operator, async (task) => {
  const { page, service, steps } = task;
  await find(task, "Introduction to", "Introduction to Programming");
  await steps.click("Change");
  await steps.click("Change the plan");
  await steps.choose("New plan", "researcher");
  await steps.choose("When", "At the next refresh of the base credits");
  await steps.click("Preview");
  await page.getByText("Nothing has changed yet.").waitFor();
  await steps.click("Change the plan");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.getByText("Plan from the next refresh").waitFor();
  const { plan, next_plan } = await service.call("GET", "/admin/accounts/cs-101");
  assert.deepEqual([plan, next_plan], ["course", "researcher"]);
});

task("Replace a key that has leaked", operator, async (task) => {
  const { page, service, steps } = task;
  const { secret } = await keyOf(service, "grace", { name: "in a public repository" });
  await steps.click("Search");
  await page.getByRole("dialog").getByRole("combobox").fill(secret);
  await page.keyboard.press("Enter");
  await steps.click("Rotate", page.getByRole("button", { name: "Rotate the key in a public repository" }));
  await steps.choose("The present secret", "ends now: it leaked");
  await steps.click("Create a new secret");
  const replaced = await copySecret(task);
  assert.deepEqual(
    [await balanceStatus(service, secret), await balanceStatus(service, replaced)],
    [401, 200],
  );
});

releaseTask("See what runs now when a customer says that it is slow", operator, async (task) => {
  const { page, steps } = task;
  const stream = await runaway(task);
  const runs = page.getByRole("region", { name: "Models with state, load and speed" }).getByRole("row");
  // One request of this model runs, and none waits.
  await steps.see("Models", runs.filter({ hasText: /^writer\s*ready\s*1\s*0/ }));
  const stop = page.getByRole("button", { name: `Stop the request ${stream.requestId}` });
  const running = page.getByRole("row").filter({ has: stop });
  await steps.see("Running requests", running.getByText("running", { exact: true }));
  await running.getByRole("link", { name: "ada" }).waitFor();
  stream.abort();
  await running.waitFor({ state: "detached" });
});

releaseTask("Stop a runaway request", operator, async (task) => {
  const { page, service, steps } = task;
  const stream = await runaway(task);
  const button = page.getByRole("button", { name: `Stop the request ${stream.requestId}` });
  await steps.click("Stop", button);
  await steps.click("Stop the request");
  await button.waitFor({ state: "detached" });
  const last = (await stream.rest()).at(-1);
  assert.ok(typeof last === "object" && last?.error?.code === "request_stopped", JSON.stringify(last));
  const { data } = await service.call("GET", `/admin/usage?request_id=${stream.requestId}`);
  assert.ok(Object(data)[0].completion_tokens >= stream.texts, JSON.stringify(data));
});

releaseTask(
  "Export the usage of each account in the last month",
  operator,
  async ({ page, service, steps }) => {
    await steps.click("Usage");
    await steps.click("Last month");
    await loaded(page);
    const now = new Date();
    const dayOf = (month: number, date: number) =>
      new Date(Date.UTC(now.getUTCFullYear(), month, date)).toISOString().slice(0, 10);
    assert.equal(await page.getByLabel("From").inputValue(), dayOf(now.getUTCMonth() - 1, 1));
    assert.equal(await page.getByLabel("to", { exact: true }).inputValue(), dayOf(now.getUTCMonth(), 0));
    const { searchParams } = new URL(page.url());
    const saving = page.waitForEvent("download");
    await steps.click("Export CSV");
    const csv = readFileSync(await (await saving).path(), "utf8")
      .trim()
      .split(/\r?\n/);
    const query = new URLSearchParams({
      by: "account",
      from: searchParams.get("from") ?? "",
      to: searchParams.get("to") ?? "",
    });
    const { data } = await service.call("GET", `/admin/usage/sums?${query}`);
    // The ledger has 30 days: at the end of a month, few or no accounts were used in the last one.
    assert.ok(Array.isArray(data));
    assert.equal(csv.length - 1, data.length);
  },
);

releaseTask(
  "See what is left, and when it refills",
  holder(() => studentKey),
  async ({ page, service, steps }) => {
    const { balances, baseWindow } = await service.call("GET", "/admin/accounts/noor/balance");
    const figure = page.locator(".figure").filter({ hasText: "Credits left" }).locator("strong");
    await steps.see(
      "Credits left",
      figure.getByText(Object(balances).total.credits.toLocaleString("en-US"), { exact: true }),
    );
    const base = page.locator(".bucket.base");
    await steps.see("Base", base.getByText(/^\d+ of 500 \([\d.]+ %\)$/));
    const refills = base.getByText("refills to 500").locator("time");
    assert.equal(await refills.getAttribute("datetime"), Object(baseWindow).refreshesAt);
  },
);

releaseTask(
  "Try a model in the chat, and see what it costs",
  holder(() => studentKey),
  async (task) => {
    const { page, service, steps } = task;
    await steps.click("Chat");
    await steps.choose("Model", model);
    await steps.click("Settings");
    await steps.fill("Longest answer (tokens)", "24");
    await steps.fill("Message", "What is ink made of?");
    await steps.click("Send");
    const cost = page.getByText(/credits for \d+ prompt tokens? and/);
    await cost.waitFor();
    assert.notEqual(await page.locator(".markdown").last().innerText(), "");
    const { data } = await service.call("GET", "/admin/usage?account=noor&order=newest&limit=1");
    const [receipt] = Object(data);
    assert.equal(receipt.ending === "length" || receipt.ending === "stop", true, receipt.ending);
    assert.ok(
      (await cost.innerText()).includes(`${receipt.cost_micro / 1_000_000} credits`),
      await cost.innerText(),
    );
    await steps.click("Requests");
    const newest = page.getByRole("region", { name: "Finished requests" }).getByRole("row").nth(1);
    await steps.click("Why?", newest.getByRole("button", { name: /^Why/ }));
    await page.getByRole("dialog").getByLabel(receipt.request_id).waitFor();
  },
);

let teamKey = "";

releaseTask(
  "Give a teammate a key",
  async (visit) => {
    teamKey = (await keyOf(visit.service, "ada", { name: "lead", portal: "account" })).secret;
    await holder(() => teamKey)(visit);
  },
  async (task) => {
    const { page, service, steps } = task;
    await steps.click("Keys");
    await steps.click("Create a key");
    await steps.fill("Name", "for Kofi");
    await steps.click("More settings");
    await steps.fill("Budget in credits", "200");
    await steps.choose("Budget period", "month");
    await steps.click("Create the key");
    const secret = await copySecret(task);
    await page
      .getByRole("row")
      .filter({ hasText: "for Kofi" })
      .getByText(/^200 of 200/)
      .waitFor();
    assert.equal(await balanceStatus(service, secret), 200);
    const { data } = await service.call("GET", "/admin/accounts/ada/keys?limit=500");
    const made = Object(data).find(({ name }: { name: string }) => name === "for Kofi");
    assert.deepEqual([made.portal, made.spending_caps[0].credits], ["own", 200]);
    assertSoundLedger(service.folder);
  },
);
