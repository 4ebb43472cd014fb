/**
 * Takes screenshots of all pages into docs/screenshots/, in both themes and four widths: with a
 * month of data and 10,000 accounts, empty, and with errors. Git does not keep them, but the
 * pictures of documents in docs/pictures/, which are some of them or parts of them.
 *
 *   npm run look [-- TEXT [FOLDER]]
 *
 * takes those of the pages whose names contain the text, into another folder. Pictures are then
 * left as they are.
 *
 * Each page is checked on the way: no error in the browser, WCAG 2.2 AA, not wider than the
 * window. The exit status is 1 if a check fails; all screenshots are taken nevertheless.
 */
import assert from "node:assert/strict";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import path from "node:path";
import type { Browser, Page } from "playwright-core";
import { type ConsoleService, startConsoleService, visit } from "../test/fixtures/browser.ts";
import { launchChromium, noChromium } from "../test/fixtures/chromium.ts";
import { assertAccessible, assertFits, loaded, open, personMenu } from "../test/fixtures/console.ts";
import { ask } from "../test/fixtures/http-stream.ts";
import { pageHeader } from "../test/fixtures/page-header.ts";
import { askApi, keyOf, openPortal } from "../test/fixtures/portal-pages.ts";
import { fillRealistic } from "../test/fixtures/realistic-ledger.ts";

interface Shot {
  name: string;
  /** Path below /console, or of the portal. */
  path: string;
  /** The portal, signed in with a key of this account. */
  holder?: string;
  service: "month" | "empty";
  /** Takes part without a session. */
  isSignedOut?: boolean;
  /** Fails these requests, by a pattern of Playwright. */
  failing?: string;
  expects?: string | RegExp;
  /** Done once, before the first screenshot. */
  prepare?(service: ConsoleService): Promise<void>;
  /** The part that is a picture of the documents, as far as the window shows it. */
  picture?: string;
  /** Brings the page into the state to show. */
  act?(page: Page): Promise<void>;
}

const choose = (action: string) => async (page: Page) => {
  await page.getByText("Change", { exact: true }).click();
  await page.getByRole("button", { name: action }).click();
  await page.getByRole("dialog").waitFor();
};
const press = (name: string) => async (page: Page) => {
  await page.getByRole("button", { name }).click();
  await page.getByRole("dialog").waitFor();
};

const shots: readonly Shot[] = [
  { name: "sign-in", path: "", service: "empty", isSignedOut: true },
  {
    name: "sign-in-refused",
    path: "",
    service: "empty",
    isSignedOut: true,
    expects: "401 POST /admin/session",
    async act(page) {
      await page.getByLabel("Operator token").fill("wrong");
      await page.keyboard.press("Enter");
      await page.locator("[aria-invalid=true]").waitFor();
    },
  },
  { name: "accounts", path: "/accounts", service: "month" },
  { name: "accounts-none-found", path: "/accounts?search=nobody", service: "month" },
  { name: "accounts-failed", path: "/accounts", service: "month", failing: "**/admin/accounts?*" },
  {
    name: "person-menu",
    path: "/links",
    service: "month",
    async act(page) {
      await personMenu(page).click();
      await page.getByText("Your role is owner.").waitFor();
    },
  },
  { name: "accounts-open-one", path: "/accounts", service: "month", act: press("Open an account") },
  { name: "account", path: "/accounts/ada", service: "month" },
  { name: "account-nearly-used-up", path: "/accounts/lin", service: "month" },
  { name: "account-suspended", path: "/accounts/mohammed", service: "month" },
  { name: "account-html", path: "/accounts/hostile", service: "month" },
  { name: "account-new", path: "/accounts/default", service: "empty" },
  { name: "account-missing", path: "/accounts/nobody", service: "month", expects: /^404 GET/ },
  { name: "account-top-up", path: "/accounts/ada", service: "month", act: press("Top up") },
  {
    name: "account-change-plan",
    path: "/accounts/lin",
    service: "month",
    async act(page) {
      await choose("Change the plan")(page);
      await page.getByRole("button", { name: "Preview" }).click();
      await page.getByText("Nothing has changed yet.").waitFor();
    },
  },
  { name: "account-close", path: "/accounts/ada", service: "month", act: choose("Close for good") },
  { name: "account-keys", path: "/accounts/ada/keys", service: "month" },
  {
    name: "account-key-new",
    path: "/accounts/ada/keys",
    service: "month",
    async act(page) {
      await press("Create a key")(page);
      await page.getByText("More settings").click();
    },
  },
  {
    name: "account-key-rotate",
    path: "/accounts/ada/keys",
    service: "month",
    act: press("Rotate the key notebook"),
  },
  {
    name: "account-refund",
    path: "/accounts/ada",
    service: "month",
    async act(page) {
      await choose("Refund a payment")(page);
      const dialog = page.getByRole("dialog");
      await dialog.getByLabel("Payment", { exact: true }).selectOption({ index: 1 });
      await dialog.getByLabel("Reason").fill("not used");
      await page.getByRole("button", { name: "Preview" }).click();
      await dialog.locator(".preview").waitFor();
    },
  },
  { name: "account-usage", path: "/accounts/ada/usage", service: "month" },
  { name: "account-receipts", path: "/accounts/ada/receipts", service: "month" },
  { name: "account-receipts-empty", path: "/accounts/default/receipts", service: "empty" },
  {
    name: "search",
    path: "",
    service: "month",
    async act(page) {
      await page.keyboard.press("Control+k");
      await page.keyboard.type("ada");
      await page.getByRole("dialog").getByRole("group", { name: "Accounts" }).waitFor();
    },
  },
  {
    name: "one-request",
    path: "/accounts/ada/receipts",
    service: "month",
    async act(page) {
      await page.locator("td a[href*='/requests/']").first().click();
      await page.getByRole("heading", { name: "Paid by" }).waitFor();
    },
  },
  { name: "account-journal", path: "/accounts/ada/journal", service: "month" },
  { name: "overview", path: "", service: "month", picture: "body" },
  {
    name: "link",
    path: "/links",
    service: "empty",
    prepare: joinByLink,
    picture: "section:has(h2:text-is('Seats'))",
    async act(page) {
      await page.getByRole("link", { name: "Informatics 1" }).click();
      await page.getByRole("img", { name: /joined/ }).waitFor();
    },
  },
  { name: "plans", path: "/plans", service: "month" },
  { name: "usage", path: "/usage", service: "month" },
  {
    name: "operators",
    path: "/operators",
    service: "month",
    act: (page) => page.locator(".line button").first().click(),
  },
  {
    name: "health",
    path: "/health",
    service: "month",
    // A node is named after its host.
    act: (page) =>
      page.getByRole("cell", { name: "(this one)" }).evaluate((cell) => {
        cell.textContent = "server-1-4f0c2a9e (this one)";
      }),
  },
  {
    name: "portal-sign-in",
    path: "",
    holder: "ada",
    service: "month",
    isSignedOut: true,
  },
  { name: "portal-home", path: "/", holder: "ada", service: "month" },
  { name: "portal-home-new", path: "/", holder: "default", service: "empty" },
  { name: "portal-home-suspended", path: "/", holder: "mohammed", service: "month" },
  { name: "portal-requests", path: "/requests", holder: "ada", service: "month" },
  {
    name: "portal-refused",
    path: "/requests?show=refused",
    holder: "default",
    service: "empty",
    async prepare({ apiUrl, key }) {
      const wrong = [{ model: "gpt-4" }, { model: "smollm2-135m-instruct", temperature: 7 }];
      for (const body of wrong) await (await ask({ url: apiUrl, key, content: "Hi", ...body })).text();
    },
    async act(page) {
      await page.getByText("There is no such model.").first().waitFor();
    },
  },
  {
    name: "portal-request",
    path: "/requests",
    holder: "ada",
    service: "month",
    async act(page) {
      await page.getByRole("button", { name: /^Why/ }).first().click();
      await page.getByRole("dialog").waitFor();
    },
  },
  {
    name: "portal-request-cut",
    path: "/requests",
    holder: "trial",
    service: "empty",
    prepare: spendEverything,
    picture: "dialog",
    async act(page) {
      await page.getByRole("button", { name: /^Why/ }).first().click();
      await page.getByRole("dialog").waitFor();
    },
  },
  { name: "portal-usage", path: "/usage?by=model", holder: "ada", service: "month" },
  {
    name: "portal-usage-box",
    path: "/usage?by=model",
    holder: "ada",
    service: "month",
    async act(page) {
      await page.locator("figure").first().locator(".time").nth(20).hover();
      await page.locator(".box").waitFor();
    },
  },
  { name: "portal-home-html", path: "/", holder: "hostile", service: "month" },
  { name: "portal-keys-html", path: "/keys", holder: "hostile", service: "month" },
  {
    name: "portal-home-long-name",
    path: "/",
    service: "month",
    holder: "a-department-with-a-very-long-identifier-and-no-spaces",
  },
  { name: "portal-keys", path: "/keys", holder: "ada", service: "month" },
  {
    name: "portal-key-edit",
    path: "/keys",
    holder: "ada",
    service: "month",
    act: press("Edit the key notebook"),
  },
  { name: "portal-key-new", path: "/keys", holder: "ada", service: "month", act: press("Create a key") },
  {
    name: "portal-made-key",
    path: "/keys",
    holder: "default",
    service: "empty",
    async act(page) {
      await press("Create a key")(page);
      await page.getByLabel("Name").fill("notebook");
      await page.getByRole("dialog").getByRole("button", { name: "Create the key" }).click();
      await page.getByRole("tab", { name: "LibreChat" }).click();
    },
  },
  {
    name: "portal-made-answer",
    path: "/chat",
    holder: "default",
    service: "empty",
    async act(page) {
      await page.getByLabel("Message").fill("What is ink made of?");
      await page.keyboard.press("Enter");
      await page.getByText(/credits for \d+ prompt/).waitFor();
    },
  },
  { name: "portal-models", path: "/models", holder: "ada", service: "month" },
  { name: "portal-start", path: "/start", holder: "ada", service: "month" },
  { name: "portal-chat", path: "/chat", holder: "default", service: "empty" },
  { name: "missing-page", path: "/no-such-page", service: "month" },
];

const later = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString();

/** A link of which 31 of 40 seats are taken, and 23 people have made a request. */
async function joinByLink(service: ConsoleService): Promise<void> {
  const name = "Informatics 1";
  const input = { operation_id: name, name, plan: "starter", seats: 40, ends_at: later(7) };
  const made = await service.call("POST", "/admin/links", input);
  const code = String(made.link).split("#join=")[1];
  for (let n = 1; n <= 31; n += 1) {
    const join = { code, join_id: String(n).padStart(22, "0"), name: `Student ${n}` };
    const response = await fetch(`${service.portalUrl}/api/session`, {
      method: "POST",
      body: JSON.stringify({ join }),
      headers: { ...pageHeader, "content-type": "application/json" },
    });
    assert.equal(response.status, 200, await response.text());
  }
  const { data } = await service.call("GET", `/admin/links/${String(made.id)}`);
  assert.ok(Array.isArray(data));
  for (const { account } of data.slice(-23)) {
    const { secret } = await keyOf(service, String(account), { name: "laptop" });
    assert.equal(await askApi(service, secret), 200);
  }
}

/** An answer that ends at the last credit. */
async function spendEverything(service: ConsoleService): Promise<void> {
  await service.call("POST", "/admin/accounts", { id: "trial", plan: "trial" });
  const { secret } = await keyOf(service, "trial", { name: "laptop" });
  const content = "Tell me a long story about an inkwell.";
  const response = await ask({ url: service.apiUrl, key: secret, model: "smollm2-135m-instruct", content });
  assert.match(await response.text(), /"finish_reason":"length"/);
}

const themes = ["light", "dark"] as const;
const widths = [360, 768, 1280, 1920];

if (noChromium !== null) throw new Error(noChromium);
const documents = path.join(import.meta.dirname, "..", "docs");
const screenshots = path.join(documents, "screenshots");
const [wanted = "", folder = screenshots] = process.argv.slice(2);
const taken = shots.filter(({ name }) => name.includes(wanted));
if (taken.length === 0) {
  console.error(`No page has "${wanted}" in its name: ${shots.map(({ name }) => name).join(", ")}.`);
  process.exit(2);
}
mkdirSync(folder, { recursive: true });
for (const file of readdirSync(folder)) {
  if (wanted === "" && file.endsWith(".png")) rmSync(path.join(folder, file));
}
await using opened = new AsyncDisposableStack();
const { browser } = opened.use(await launchChromium());
const plans = `plans:
  starter: { base: { credits: 100000, every: P1D }, overage: { credits: 20000, every: P1M } }
  trial: { base: { credits: 12, every: P1D }, overage: { credits: 0, every: P1M } }
`;
const starts = {
  month: () =>
    startConsoleService({
      pages: "portal",
      fill: (at) => fillRealistic(at, { furtherAccounts: 10_000 }),
    }),
  empty: () => startConsoleService({ pages: "portal", configuration: plans }),
};
const services = new Map<string, ConsoleService>();
for (const name of ["month", "empty"] as const) {
  if (taken.some(({ service }) => service === name)) services.set(name, opened.use(await starts[name]()));
}
/** Keys of the portal's pictures, by account. */
const keys = new Map<string, string>();
for (const shot of taken) {
  const service = services.get(shot.service);
  assert.ok(service !== undefined, `the service "${shot.service}" runs`);
  await shot.prepare?.(service);
  for (const colorScheme of themes) {
    for (const width of widths) {
      const name = `${shot.name}-${width}-${colorScheme}`;
      try {
        await take(browser, service, shot, { name, width, colorScheme });
      } catch (error) {
        process.exitCode = 1;
        console.error(`${name}: ${error instanceof Error ? error.message : String(error)}\n`);
      }
    }
  }
}
console.log(`Screenshots of ${taken.length} pages are in ${path.relative(".", folder)}.`);

async function take(
  browser: Browser,
  service: ConsoleService,
  shot: Shot,
  { name, width, colorScheme }: { name: string; width: number; colorScheme: (typeof themes)[number] },
): Promise<void> {
  const viewport = { width, height: width < 500 ? 740 : width < 1500 ? 860 : 1080 };
  await using visited = await visit(
    browser,
    [new URL(shot.holder === undefined ? service.url : service.portalUrl).origin],
    { viewport, colorScheme },
  );
  const { page, context } = visited;
  if (shot.expects !== undefined) visited.expects(shot.expects);
  if (shot.failing !== undefined) {
    await page.route(shot.failing, (route) => route.abort("connectionrefused"));
    visited.expects(/^failed /);
  }
  if (shot.isSignedOut === true) {
    await page.goto(shot.holder === undefined ? `${service.url}/console${shot.path}` : service.portalUrl);
    await loaded(page);
  } else if (shot.holder !== undefined) {
    const settings = { name: "Ada's laptop", portal: "account" };
    const key = keys.get(shot.holder) ?? (await keyOf(service, shot.holder, settings)).secret;
    keys.set(shot.holder, key);
    await openPortal({ context, page, service }, shot.path, key);
  } else await open({ context, page, service }, shot.path);
  await shot.act?.(page);
  await page.screenshot({ path: path.join(folder, `${name}.png`), animations: "disabled" });
  if (shot.picture !== undefined && folder === screenshots && width === 1280 && colorScheme === "light") {
    const picture = path.join(documents, "pictures", `${shot.name}.png`);
    const box = await page.locator(shot.picture).boundingBox();
    assert.ok(box !== null);
    const clip = { ...box, height: Math.min(box.height, viewport.height - box.y) };
    await page.screenshot({ path: picture, clip, animations: "disabled" });
  }
  await assertFits(page);
  await assertAccessible(page);
  visited.assertExpected();
}
