/** Signing in to the console and out of it, and sessions that end while a page is open. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders } from "node:http";
import { browserTests } from "../fixtures/browser.ts";
import {
  assertAccessible,
  confirmed,
  endSession,
  enterToken,
  expireSessions,
  loaded,
  open,
  personMenu,
  signOut,
} from "../fixtures/console.ts";
import { ofRelease, some } from "../fixtures/thorough.ts";

const test = browserTests();
const releaseTest = ofRelease(test);

test("signs in with the operator token, and stays signed in after a reload", async ({ page, service }) => {
  await page.goto(`${service.url}/console`);
  await page.getByRole("heading", { name: "Inkwell console" }).waitFor();
  await assertAccessible(page);
  await page.getByLabel("Operator token").fill(service.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("navigation", { name: "Sections" }).waitFor();
  await page.reload();
  await page.getByRole("navigation", { name: "Sections" }).waitFor();
  assert.equal(await page.getByLabel("Operator token").count(), 0);
});

test("keeps the session in a cookie that scripts cannot read, and half of it in storage", async (visit) => {
  await open(visit, "/accounts");
  const cookies = await visit.context.cookies();
  assert.deepEqual(
    cookies.map(({ name, httpOnly, sameSite, path }) => ({ name, httpOnly, sameSite, path })),
    [{ name: "inkwell_console", httpOnly: true, sameSite: "Strict", path: "/" }],
  );
  assert.equal(await visit.page.evaluate("document.cookie"), "");
  const stored: string = await visit.page.evaluate(
    "JSON.stringify([{ ...localStorage }, { ...sessionStorage }])",
  );
  assert.ok(!stored.includes(visit.service.token) && !stored.includes(cookies[0]?.value ?? "?"), stored);
});

test("chooses a secret for each sign-in that the next person at the browser cannot use", async ({
  page,
  service,
}) => {
  const secrets: string[] = [];
  for (const _ of ["first", "second"]) {
    await page.goto(`${service.url}/console`);
    await enterToken({ page, service });
    await personMenu(page).waitFor();
    secrets.push(await page.evaluate("localStorage['inkwell-page /admin']"));
    await signOut(page);
    await page.getByLabel("Operator token").waitFor();
    assert.equal(await page.evaluate("localStorage['inkwell-page /admin']"), undefined);
  }
  for (const secret of secrets) assert.match(secret, /^[\w-]{43}$/);
  assert.equal(new Set(secrets).size, 2);
});

test("logs out for good, also before the page knows whose session it is", async ({ page, service }) => {
  await page.goto(`${service.url}/console`);
  await page.getByLabel("Operator token").waitFor();
  const { promise: isReleased, resolve: release } = Promise.withResolvers<void>();
  await page.route("**/admin/session", async (route) => {
    if (route.request().method() !== "GET") return await route.continue();
    const response = await route.fetch();
    await isReleased;
    await route.fulfill({ response });
  });
  await enterToken({ page, service });
  await signOut(page);
  await page.getByLabel("Operator token").waitFor();
  const answered = page.waitForResponse(
    (response) => response.request().method() === "GET" && response.url().endsWith("/admin/session"),
  );
  release();
  await (await answered).finished();
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").getByText("Enter the operator token").waitFor();
  assert.equal(await personMenu(page).count(), 0);
});

test("opens in a second tab and by a link in a new tab, and logs out in all of them", async ({
  page,
  context,
  service,
  expects,
}) => {
  expects("401 GET /admin/overview");
  await page.goto(`${service.url}/console`);
  await enterToken({ page, service });
  await page.getByText("live", { exact: true }).waitFor();
  const second = await context.newPage();
  await second.goto(`${service.url}/console/accounts`);
  await loaded(second);
  const [third] = await Promise.all([
    context.waitForEvent("page"),
    second.getByRole("link", { name: "Usage" }).click({ modifiers: ["Control"] }),
  ]);
  await loaded(third);
  assert.equal(await third.getByLabel("Operator token").count(), 0);
  await signOut(second);
  await second.getByLabel("Operator token").waitFor();
  await page.getByRole("heading", { name: "Sign in again" }).waitFor();
  // Signing in again in one tab is enough for the others.
  await enterToken({ page, service });
  await page.getByRole("heading", { name: "Sign in again" }).waitFor({ state: "detached" });
  await third.reload();
  await loaded(third);
  assert.equal(await third.getByLabel("Operator token").count(), 0);
});

test("gives a page and a server on another port nothing that they can use", async (visit) => {
  const { page, context, service, expects } = visit;
  await page.goto(`${service.url}/console`);
  await enterToken({ page, service });
  // The page to sign in with counts as loaded.
  await personMenu(page).waitFor();
  expects(/^foreign: /, /^error: Access to fetch at .* blocked by CORS policy/);
  expects("failed GET /admin/accounts", "failed POST /admin/accounts", "403 GET /admin/accounts");
  const received: IncomingHttpHeaders[] = [];
  await using stranger = await startStranger(received);
  const other = await context.newPage();
  await other.goto(stranger.url);
  const tried: string = await other.evaluate(`(async () => {
    const headers = { "x-inkwell-request": "${"x".repeat(43)}", "content-type": "application/json" };
    const failed = () => "failed";
    const get = (options) => fetch("${service.url}/admin/accounts", { credentials: "include", ...options });
    const answers = [get({}), get({ headers }), get({ mode: "no-cors" }), get({ method: "POST", headers, body: "{}" })];
    const seen = await Promise.all(answers.map((each) => each.then(({ type }) => type, failed)));
    return seen.join() + " " + JSON.stringify({ ...localStorage });
  })()`);
  assert.equal(tried, "failed,failed,opaque,failed {}");
  // The browser has given the cookie to the other server with its page.
  const [stolen] = received.flatMap(({ cookie }) => cookie ?? []);
  assert.match(stolen ?? "", /^inkwell_console=[\w-]{43}$/);
  for (const secret of [undefined, "1", stolen?.split("=")[1], "x".repeat(43)]) {
    const headers = { cookie: stolen ?? "", ...(secret !== undefined && { "x-inkwell-request": secret }) };
    const { status } = await fetch(`${service.url}/admin/accounts`, { headers });
    assert.ok(status === 401 || status === 403, `${secret}: ${status}`);
  }
  await page.reload();
  await loaded(page);
  assert.equal(await page.getByLabel("Operator token").count(), 0, "the session is as it was");
});

/** A page on another port of the same host, which keeps the headers that it receives. */
async function startStranger(received: IncomingHttpHeaders[]): Promise<{ url: string } & AsyncDisposable> {
  const server = createServer(({ headers }, response) => {
    received.push(headers);
    response.setHeader("content-type", "text/html").end("<title>Other</title>");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  return {
    url: `http://127.0.0.1:${address.port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

test("refuses a wrong token at the field, and keeps what was typed", async ({ page, service, expects }) => {
  expects("401 POST /admin/session");
  await page.goto(`${service.url}/console`);
  const field = page.getByLabel("Operator token");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("Enter the operator token.").waitFor();
  await field.fill("not-the-token");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").filter({ hasText: /token/i }).waitFor();
  assert.equal(await field.getAttribute("aria-invalid"), "true");
  assert.equal(await field.inputValue(), "not-the-token");
  await assertAccessible(page);
});

test("signs in with a link once, and removes its code from the address bar", async ({
  page,
  context,
  service,
  expects,
}) => {
  const { code } = await service.call("POST", "/admin/session/codes");
  await page.goto(`${service.url}/console#code=${String(code)}`);
  await page.getByRole("navigation", { name: "Sections" }).waitFor();
  await loaded(page);
  assert.ok(!page.url().includes("code"), page.url());
  expects("401 POST /admin/session");
  await context.clearCookies();
  const second = await context.newPage();
  await second.goto(`${service.url}/console#code=${String(code)}`);
  await second
    .getByText("This sign-in link is unknown, was used before, or is older than 5 minutes.")
    .waitFor();
  assert.ok(!second.url().includes("code"), second.url());
});

releaseTest(
  "opens the console if a used link is opened again in a browser that is signed in",
  async ({ page, service, expects }) => {
    const { code } = await service.call("POST", "/admin/session/codes");
    const link = `${service.url}/console#code=${String(code)}`;
    await page.goto(link);
    await page.getByRole("navigation", { name: "Sections" }).waitFor();
    expects("401 POST /admin/session");
    await page.goto("about:blank");
    await page.goto(link);
    await page.getByRole("navigation", { name: "Sections" }).waitFor();
    assert.equal(await page.getByLabel("Operator token").count(), 0);
  },
);

test("a live page asks for a sign-in when its session ends, and loses nothing that was typed", async (visit) => {
  const { page, service, expects } = visit;
  expects("401 GET /admin/accounts/expired/live");
  await service.call("POST", "/admin/accounts", { id: "expired", plan: "starter" });
  await open(visit, "/accounts/expired");
  await page.getByRole("button", { name: "Top up" }).click();
  await page.getByRole("dialog").getByLabel("Credits").fill("1250");
  await page.getByRole("dialog").getByLabel("Payment id").fill("invoice-77");
  await endSession(visit);
  await page.getByRole("heading", { name: "Sign in again" }).waitFor();
  await assertAccessible(page);
  await page.getByLabel("Operator token").fill(service.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Sign in again" }).waitFor({ state: "detached" });
  assert.equal(await page.getByRole("dialog").getByLabel("Credits").inputValue(), "1250");
  assert.equal(await page.getByRole("dialog").getByLabel("Payment id").inputValue(), "invoice-77");
  await page.getByRole("button", { name: "Add the credits" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  const { balances } = await service.call("GET", "/admin/accounts/expired/balance");
  assert.match(JSON.stringify(balances), /"additional":\{[^}]*"credits":1250[,}]/);
});

for (const limit of some(["idle", "absolute"] as const, 2)) {
  test(`a session that reaches its ${limit} limit asks for a sign-in, and goes on with the form`, async (visit) => {
    const { page, service, context, expects } = visit;
    const id = `expired-${limit}`;
    await service.call("POST", "/admin/accounts", { id, plan: "starter" });
    // This page does not ask by itself, and so does not notice it first.
    await open(visit, `/accounts/${id}/keys`);
    await page.getByRole("button", { name: "Top up" }).click();
    await page.getByRole("dialog").getByLabel("Credits").fill("33");
    const [before] = await context.cookies();
    expireSessions(service, limit);
    expects(`401 POST /admin/accounts/${id}/topups`);
    await page.getByRole("button", { name: "Add the credits" }).click();
    await page.getByRole("heading", { name: "Sign in again" }).waitFor();
    await enterToken({ page, service });
    await page.getByRole("heading", { name: "Sign in again" }).waitFor({ state: "detached" });
    const [after] = await context.cookies();
    assert.notEqual(after?.value, before?.value);
    await page.getByRole("button", { name: "Add the credits" }).click();
    await confirmed(page, `33 credits added to ${id}.`);
    const { data } = await service.call("GET", `/admin/accounts/${id}/journal`);
    assert.equal(Object(data).filter((entry: { kind: string }) => entry.kind === "payment").length, 1);
  });
}

releaseTest(
  "a page that is opened after its session has expired asks for a sign-in, and then opens",
  async (visit) => {
    const { page, service } = visit;
    await open(visit, "/usage?by=model");
    expireSessions(service, "absolute");
    await page.reload();
    await enterToken({ page, service });
    await page.getByRole("heading", { name: "Usage", exact: true }).waitFor();
    assert.match(page.url(), /\/usage\?by=model$/);
  },
);

releaseTest("a link deep into the console opens after the sign-in", async ({ page, service }) => {
  await service.call("POST", "/admin/accounts", { id: "deep", plan: "starter" });
  await page.goto(`${service.url}/console/accounts/deep/journal`);
  await enterToken({ page, service });
  await page.getByRole("region", { name: "Journal of the account" }).waitFor();
  await page.reload();
  await page.getByRole("region", { name: "Journal of the account" }).waitFor();
});
