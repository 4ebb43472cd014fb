/** Signing in with OpenID Connect in a real browser, at a real issuer. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { browserOfTests } from "../fixtures/browser.ts";
import { noChromium } from "../fixtures/chromium.ts";
import { assertAccessible, personMenu, signOut } from "../fixtures/console.ts";
import { type SignInPlaces, startSignIn } from "../fixtures/sign-in.ts";
import { releaseTest } from "../fixtures/thorough.ts";

const rules = {
  operators: [
    { kind: "group", value: "it", role: "operator" },
    { kind: "group", value: "owners", role: "owner" },
  ],
  accounts: [{ kind: "group", value: "students", plan: "test" }],
  contact: "the help desk",
} as const;

const startBrowser = browserOfTests();

describe("a browser", { skip: noChromium ?? false }, () => {
  const opened = new AsyncDisposableStack();
  let browser: Browser;
  let place: SignInPlaces;
  before(async () => {
    browser = await startBrowser();
    place = opened.use(await startSignIn(rules, { personKeys: { most: 1, life: "P180D" } }));
  });
  after(() => opened.disposeAsync());

  /** A page without anything that an earlier one has left. */
  async function visit(run: (page: Page) => Promise<void>): Promise<void> {
    const context = await browser.newContext();
    try {
      await run(await context.newPage());
    } finally {
      await context.close();
    }
  }
  const press = async (page: Page) => {
    await page.getByRole("button", { name: "Sign in with Example University" }).click();
  };

  test("comes back to the page that its user had opened, and the address keeps no code", () =>
    visit(async (page) => {
      place.issuer.signsIn({ sub: "ada", name: "Ada <b>L</b>", groups: ["students"] });
      await page.goto(`${place.portal.url}/usage?by=model`);
      await page.getByRole("heading", { name: "Inkwell" }).waitFor();
      await assertAccessible(page);
      await press(page);
      await page.getByRole("heading", { name: "Usage" }).waitFor();
      assert.equal(page.url(), `${place.portal.url}/usage?by=model`);
      const entries: string = await page.evaluate("JSON.stringify(history.state) + document.referrer");
      assert.ok(!entries.includes("code="));
      await page.goBack();
      assert.ok(!page.url().includes("code="), page.url());
    }));

  for (const [name, sub, groups] of [
    ["portal", "ada", ["students"]],
    ["operator", "olga", ["it"]],
  ] as const)
    test(`loads a page of the ${name} that Back shows again: another session can be there`, () =>
      visit(async (page) => {
        const url = name === "portal" ? `${place.portal.url}/` : `${place.operator.url}/console`;
        // This browser keeps no page.
        const back = "dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))";
        place.issuer.signsIn({ sub, groups: [...groups] });
        await page.goto(url);
        await press(page);
        await personMenu(page).waitFor();
        await page.evaluate("window.isKept = true");
        const other = await page.context().newPage();
        await other.goto(url);
        await signOut(other);
        await other.getByRole("button", { name: "Sign in with Example University" }).waitFor();
        // On the portal, somebody else signs in.
        if (name === "portal") {
          place.issuer.signsIn({ sub: "bob", groups: [...groups] });
          await press(other);
          await personMenu(other).waitFor();
        }
        await other.close();
        await page.evaluate(back);
        await page.waitForFunction("window.isKept === undefined");
        if (name === "portal") await personMenu(page).waitFor();
        else await page.getByRole("button", { name: "Sign in with Example University" }).waitFor();
      }));

  releaseTest("is told whom to ask if nobody has given its user access", () =>
    visit(async (page) => {
      place.issuer.signsIn({ sub: "eve", groups: [] });
      await page.goto(`${place.operator.url}/console`);
      await press(page);
      await page.getByText("nobody has given you access here. Ask the help desk.").waitFor();
      await assertAccessible(page);
      assert.equal(await page.getByLabel("Operator token").getAttribute("aria-invalid"), "false");
    }),
  );

  test("is told that the issuer is away, and can try again", () =>
    visit(async (page) => {
      place.people.configure({ ...place.settings, issuer: "http://127.0.0.1:9" });
      await page.goto(`${place.portal.url}/`);
      await press(page);
      await page.getByText("Example University cannot be reached or used now.").waitFor();
      await page.reload();
      await page.getByText("Example University could not be reached a moment ago.").waitFor();
      place.people.configure(place.settings);
      place.issuer.signsIn({ sub: "ada", groups: ["students"] });
      await press(page);
      await page.getByRole("heading", { name: "Balance" }).waitFor();
    }));

  releaseTest("makes keys within those of the plan, which expire", () =>
    visit(async (page) => {
      place.issuer.signsIn({ sub: "kim", groups: ["students"] });
      await page.goto(`${place.portal.url}/keys`);
      await press(page);
      await page.getByText("You may have one key that works. A key lives for 180 days at most.").waitFor();
      for (const name of ["first", "second"]) {
        await page.getByRole("button", { name: "Create a key" }).click();
        await page.getByLabel("Name").fill(name);
        await page.getByRole("button", { name: "Create the key" }).click();
        if (name === "first") await page.getByRole("button", { name: "Done" }).click();
      }
      await page.getByText("Your plan allows one key at the same time.").waitFor();
    }),
  );

  test("asks an owner to sign in again before an owner key, and goes on with the form", () =>
    visit(async (page) => {
      place.issuer.signsIn({ sub: "olga", groups: ["owners"] });
      await page.goto(`${place.operator.url}/console/operators`);
      await press(page);
      await page.getByRole("button", { name: "Make an operator key" }).click();
      await page.getByLabel("Name").fill("billing");
      await page.getByLabel("Role").selectOption("owner");
      const { store } = place.service;
      const { times } = store;
      store.times = () => ({ ...times(), nowMs: times().nowMs + 16 * 60_000 });
      await page.getByRole("button", { name: "Make the key" }).click();
      await page.getByRole("heading", { name: "Sign in again" }).waitFor();
      store.times = times;
      const popup = page.context().waitForEvent("page");
      await press(page);
      await personMenu(await popup).waitFor();
      await page.evaluate("dispatchEvent(new Event('focus'))");
      await page.getByRole("heading", { name: "Sign in again" }).waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Make the key" }).click();
      assert.match(await page.getByLabel("Secret of the key").inputValue(), /^iko_/);
    }));

  test("signs an operator out of the console", () =>
    visit(async (page) => {
      place.issuer.signsIn({ sub: "root", groups: ["it"] });
      await page.goto(`${place.operator.url}/console/accounts`);
      await press(page);
      await page.getByRole("heading", { name: "Accounts" }).waitFor();
      await signOut(page);
      await page.getByRole("button", { name: "Sign in with Example University" }).waitFor();
      await press(page);
      const before = await place.signIn("operator");
      await personMenu(page).click();
      await page.getByText("Your sessions").first().click();
      const rows = page.getByRole("table", { name: "Your sessions" }).getByRole("row");
      await rows.filter({ hasText: "yes" }).waitFor();
      assert.equal(await rows.count(), 1 + 2);
      await page.getByRole("button", { name: "End all sessions" }).click();
      await page.getByRole("button", { name: "Sign in with Example University" }).waitFor();
      const { status } = await place.ask("operator", "GET", "/admin/sessions", undefined, { cookie: before });
      assert.equal(status, 401);
    }));
});
