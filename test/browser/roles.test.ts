/**
 * Buttons of the console that a role forbids are off and say why. No other button leads to a
 * request that the service refuses with 403.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import type { Browser, Page } from "playwright-core";
import { browserOfTests } from "../fixtures/browser.ts";
import { noChromium } from "../fixtures/chromium.ts";
import { assertAccessible, assertFits, choose, loaded, personMenu } from "../fixtures/console.ts";
import { planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { babble, say } from "../fixtures/service.ts";
import { type SignInPlaces, startSignIn } from "../fixtures/sign-in.ts";

const roles = ["viewer", "support"] as const;
const operators = roles.map((role) => ({ kind: "group", value: role, role }) as const);

interface Visited {
  path: string;
  /** What must be off. More may be. */
  off: readonly string[];
  prepare?(page: Page): Promise<void>;
}

/** Every page of the console with all that it can do. */
const pages = (ids: Record<"request" | "link", string>): readonly Visited[] => [
  { path: "", off: ["Stop the request"] },
  { path: "/usage", off: [] },
  {
    path: "/accounts",
    off: [...["Import", "Open an account"], ...["Top up", "Change the plan", "Invite", "Suspend or resume"]],
    prepare: (page) => page.getByRole("checkbox", { name: "Choose all of this page" }).check(),
  },
  {
    path: "/accounts/test",
    off: [
      ...["Top up", "Change the plan", "Adjust credits", "Refund a payment", "Invite a person"],
      ...["Edit the contact", "Set the end date", "Suspend", "Close for good", "Stop the request"],
    ],
  },
  { path: "/accounts/late", off: ["Resume"] },
  {
    path: "/accounts/test/keys",
    off: ["Create a key", "Edit the key webui", "Rotate the key webui", "Revoke the key webui"],
  },
  { path: "/accounts/test/usage", off: [] },
  { path: "/accounts/test/receipts", off: [] },
  { path: "/accounts/test/journal", off: [] },
  { path: `/requests/${ids.request}`, off: ["Give credits for it"] },
  {
    path: "/people",
    off: [
      "Add a person behind a front end",
      ...["Link an account to ada", "Suspend ada", "Export the data of ada", "Erase the data of ada"],
    ],
  },
  { path: "/links", off: ["Make a link"] },
  { path: `/links/${ids.link}`, off: ["Change", "New link", "End", "Close all accounts"] },
  { path: "/plans", off: ["Reload the configuration", "Apply the plans of the configuration"] },
  { path: "/health", off: [] },
  { path: "/events", off: ["Send again"] },
  { path: "/operators", off: ["Make an operator key"] },
];

/** Buttons in sight, also those of menus. */
const buttons = "main button";

interface Seen {
  url: string;
  path: string;
  /** The text of each button, and whether it is off. */
  shown: [text: string, isOff: boolean][];
  hasDialog: boolean;
  hasForm: boolean;
}

async function seen(page: Page): Promise<Seen> {
  return await page.evaluate(`(() => {
    const { href, pathname } = location;
    const all = [...document.querySelectorAll(${JSON.stringify(buttons)})];
    return {
      url: href,
      path: pathname,
      shown: all.map((button) => [button.textContent, button.matches(":disabled, [aria-disabled=true]")]),
      hasDialog: document.querySelector("dialog") !== null,
      hasForm: document.querySelector("dialog button[type=submit]") !== null,
    };
  })()`);
}

const startBrowser = browserOfTests();

describe("a browser", { skip: noChromium ?? false }, () => {
  const opened = new AsyncDisposableStack();
  let browser: Browser;
  let place: SignInPlaces;
  const ids = { request: "", link: "" };
  before(async () => {
    browser = await startBrowser();
    place = opened.use(await startSignIn({ operators }, { service: { script: say("Hello") } }));
    const { service, operator } = place;
    const make = async (path: string, body: object) => {
      const { status, text, body: made } = await operator.post(path, body);
      assert.ok(status < 300, text);
      return made;
    };
    await make("/admin/accounts", { id: "late", plan: "test" });
    await make("/admin/accounts/late/state", { operation_id: "late", state: "suspended" });
    const frontEnd = { name: "webui", acts_for: { name: "webui", header: "x-person" } };
    await make("/admin/accounts/test/keys", { operation_id: "front-end", ...frontEnd });
    const seats = { plan: "test", seats: 2, ends_at: new Date(Date.now() + 86_400_000).toISOString() };
    ids.link = String((await make("/admin/links", { operation_id: "link", name: "Class", ...seats })).id);
    const answer = await service.chat();
    await answer.text();
    ids.request = answer.headers.get("x-request-id") ?? "";
    service.engine.script = () => babble("word ", { tokenDelayMs: 50 });
    const leave = new AbortController();
    const running = await service.chat({ stream: true }, { signal: leave.signal });
    opened.defer(async () => {
      leave.abort();
      await running.text().catch(() => {});
    });
    await service.store.applyPlans(plansOf(planOf("test", 2000, 200)), { force: false, by: "test" });
    place.issuer.signsIn({ sub: "ada", name: "ada", groups: ["viewer"] });
    await place.signIn("operator");
  });
  after(() => opened.disposeAsync());

  /** A page that somebody with this role sees, and the requests that the service has refused. */
  async function signedIn(role: string) {
    const context = await browser.newContext();
    const page = await context.newPage();
    const refused: string[] = [];
    page.on("response", (response) => {
      if (response.status() === 403) refused.push(`${response.request().method()} ${response.url()}`);
    });
    place.issuer.signsIn({ sub: role, name: `The ${role}`, groups: [role] });
    await page.goto(`${place.operator.url}/console`);
    await page.getByRole("button", { name: "Sign in with Example University" }).click();
    await personMenu(page).getByText(role, { exact: true }).waitFor();
    return { page, refused, [Symbol.asyncDispose]: () => context.close() };
  }

  test("of a viewer offers nothing that the service refuses, and says why", async () => {
    await using visit = await signedIn("viewer");
    const { page, refused } = visit;
    const offered: string[] = [];
    for (const { path, off, prepare } of pages(ids)) {
      const open = async () => {
        await page.goto(`${place.operator.url}/console${path}`);
        await loaded(page);
        await personMenu(page).getByText("viewer", { exact: true }).waitFor();
        await prepare?.(page);
        await page.evaluate("for (const menu of document.querySelectorAll('main details')) menu.open = true");
        if (off[0] !== undefined) await page.getByRole("button", { name: off[0] }).first().waitFor();
      };
      await open();
      if (off.length > 2) await assertAccessible(page);
      for (const name of off) {
        const button = page.getByRole("button", { name }).first();
        assert.ok(await button.isDisabled(), `${path}: ${name}`);
        // Without another description, the title is it.
        assert.match((await button.getAttribute("title")) ?? "", /^This needs the role (support|op|owner)/);
        assert.equal(await button.getAttribute("aria-describedby"), null);
      }
      const first = await seen(page);
      let { shown } = first;
      for (const n of first.shown.keys()) {
        const [name = "", isOff] = shown[n] ?? [];
        if (isOff ?? true) continue;
        // Not by a click: an open menu may cover it.
        await page.locator(buttons).nth(n).dispatchEvent("click");
        await loaded(page);
        const next = await seen(page);
        if (next.hasForm) offered.push(`${path}: ${name}`);
        // A page that shows another range has the same buttons.
        const isSame = next.path === first.path && isDeepStrictEqual(next.shown, first.shown);
        if (next.hasDialog || (next.url !== first.url && !isSame)) await open();
        ({ shown } = await seen(page));
      }
    }
    // Drafts change nothing.
    const drafts = ["/plans: Change this plan", "/health: Change its prices"];
    assert.deepEqual([...new Set(offered)], drafts, "changes that are offered");
    assert.deepEqual(refused, [], "requests that are refused");
  });

  test("says why to those who press, and who is signed in with which rights", async () => {
    await using visit = await signedIn("viewer");
    const { page, refused } = visit;
    await page.goto(`${place.operator.url}/console/accounts/test`);
    await page.getByRole("button", { name: "Top up" }).press("Enter");
    await page.getByRole("status").getByText("This needs the role operator.").waitFor();
    assert.equal(await page.getByRole("dialog").count(), 0);
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: 800 });
      await personMenu(page).getByText("The viewer").click();
      await page.getByText("Your role is viewer. You see everything, and change nothing.").waitFor();
      await page.getByLabel("Theme").waitFor();
      await page.getByRole("button", { name: "Sign out" }).waitFor();
      await assertAccessible(page);
      await assertFits(page);
      await page.keyboard.press("Escape");
      await page.getByLabel("Theme").waitFor({ state: "hidden" });
    }
    assert.deepEqual(refused, []);
  });

  test("of support is off where the values or the key need another role", async () => {
    await using visit = await signedIn("support");
    const { page, refused } = visit;
    await page.goto(`${place.operator.url}/console/accounts/test`);
    await choose(page, "Adjust credits");
    const submit = page.locator("dialog button[type=submit]");
    assert.equal(await submit.isDisabled(), false);
    await page.getByRole("textbox", { name: "Credits" }).fill("-5");
    await page.getByRole("dialog").getByText("This needs the role operator.").waitFor();
    assert.ok(await submit.isDisabled());
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.locator("summary").getByText("Change", { exact: true }).click();
    const off = async (name: string) => await page.getByRole("button", { name, exact: true }).isDisabled();
    assert.deepEqual([await off("Suspend"), await off("Close for good")], [false, true]);
    await page.getByRole("link", { name: "Keys" }).click();
    await page.getByRole("button", { name: "Rotate the key webui" }).waitFor();
    const key = async (action: string) => await off(`${action} the key webui`);
    assert.deepEqual([await key("Edit"), await key("Rotate"), await key("Revoke")], [true, true, false]);
    assert.deepEqual(refused, []);
  });
});
