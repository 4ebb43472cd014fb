/**
 * Takes screenshots of all pages into docs/screenshots/, in both themes and four widths: with a
 * month of data and 10,000 accounts, empty, and with errors. Git keeps the one of README.md.
 *
 *   npm run look [-- TEXT [FOLDER]]
 *
 * takes those of the pages whose names contain the text, into another folder.
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
import { assertAccessible, assertFits, loaded, open } from "../test/fixtures/console.ts";
import { keyOf, openPortal } from "../test/fixtures/portal-pages.ts";
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
  { name: "account-refund", path: "/accounts/ada", service: "month", act: choose("Refund a payment") },
  { name: "account-usage", path: "/accounts/ada/usage", service: "month" },
  { name: "account-receipts", path: "/accounts/ada/receipts", service: "month" },
  { name: "account-receipts-empty", path: "/accounts/default/receipts", service: "empty" },
  { name: "account-journal", path: "/accounts/ada/journal", service: "month" },
  { name: "overview", path: "", service: "month" },
  { name: "plans", path: "/plans", service: "month" },
  { name: "usage", path: "/usage", service: "month" },
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
    name: "portal-request",
    path: "/requests",
    holder: "ada",
    service: "month",
    async act(page) {
      await page.getByRole("button", { name: /^Why/ }).first().click();
      await page.getByRole("dialog").waitFor();
    },
  },
  { name: "portal-usage", path: "/usage?by=model", holder: "ada", service: "month" },
  {
    name: "portal-usage-scales",
    path: "/usage?by=model",
    holder: "ada",
    service: "month",
    async act(page) {
      await page.getByRole("button", { name: "Each on its own scale" }).first().click();
      await page.locator("figure").first().locator("canvas").nth(2).waitFor();
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

const themes = ["light", "dark"] as const;
const widths = [360, 768, 1280, 1920];

if (noChromium !== null) throw new Error(noChromium);
const [wanted = "", folder = path.join(import.meta.dirname, "..", "docs", "screenshots")] =
  process.argv.slice(2);
const taken = shots.filter(({ name }) => name.includes(wanted));
if (taken.length === 0)
  throw new Error(`No page has "${wanted}" in its name: ${shots.map(({ name }) => name).join(", ")}.`);
mkdirSync(folder, { recursive: true });
for (const file of readdirSync(folder)) {
  if (wanted === "" && file.endsWith(".png")) rmSync(path.join(folder, file));
}
await using opened = new AsyncDisposableStack();
const { browser } = opened.use(await launchChromium());
const starts = {
  month: () =>
    startConsoleService({
      pages: "portal",
      fill: (at) => fillRealistic(at, { furtherAccounts: 10_000 }),
    }),
  empty: () => startConsoleService({ pages: "portal" }),
};
const services = new Map<string, ConsoleService>();
for (const name of ["month", "empty"] as const) {
  if (taken.some(({ service }) => service === name)) services.set(name, opened.use(await starts[name]()));
}
/** Keys of the portal's pictures, by account. */
const keys = new Map<string, string>();
for (const shot of taken) {
  for (const colorScheme of themes) {
    for (const width of widths) {
      const name = `${shot.name}-${width}-${colorScheme}`;
      try {
        const service = services.get(shot.service);
        assert.ok(service !== undefined, `the service "${shot.service}" runs`);
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
  await assertFits(page);
  await assertAccessible(page);
  visited.assertExpected();
}
