/** Invitations in a real browser: from the link to a chat request with the key that was made. */
import assert from "node:assert/strict";
import { browserTests, type Visit } from "../fixtures/browser.ts";
import { assertAccessible, choose, open, signOut, submit } from "../fixtures/console.ts";
import { askApi } from "../fixtures/portal-pages.ts";

const test = browserTests({ pages: "both" });

/** Opens an account, and invites its person. Returns the link, on the port of the portal. */
async function linkFor({ call, portalUrl }: Visit["service"], id: string): Promise<string> {
  await call("POST", "/admin/accounts", { id, plan: "starter", email: `${id}@x.example` });
  const { link } = await call("POST", `/admin/accounts/${id}/invitation`, {});
  assert.ok(String(link).startsWith(`${portalUrl}/#invite=`), String(link));
  return String(link);
}

test("an invited person opens the link, presses the button, makes a key and uses it", async (visit) => {
  const { page, service } = visit;
  const link = await linkFor(service, "invited");
  const requests: string[] = [];
  page.on("request", (request) => requests.push(`${request.method()} ${request.url()}`));
  await page.goto(link);
  await page.getByRole("heading", { name: "You are invited" }).waitFor();
  await assertAccessible(page);
  assert.equal(page.url(), `${service.portalUrl}/`, "the address keeps no code");
  const code = link.split("#invite=")[1] ?? "";
  assert.ok(!requests.some((each) => each.includes(code) || each.startsWith("POST")), requests.join("\n"));
  // A scanner that runs scripts presses nothing, and the link still works afterwards. Here it is
  // pasted into the same tab.
  await page.goto(`${service.portalUrl}/`);
  await page.getByLabel("API key").waitFor();
  await page.goto(link);
  await page.getByText("Anyone who has the link is taken for you").waitFor();
  await page.getByRole("button", { name: "Open my account" }).click();
  await page.getByRole("heading", { name: "Balance" }).waitFor();
  await page.getByRole("link", { name: "Keys" }).click();
  await page.getByRole("button", { name: "Create a key" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("laptop");
  await submit(page);
  const secret = await dialog.getByLabel("Secret of the key").inputValue();
  assert.equal(await askApi(service, secret), 200);
  await dialog.getByRole("button", { name: "Done" }).click();
  const stored: string = await page.evaluate(
    "JSON.stringify([localStorage, sessionStorage, history.state, document.referrer, location.href])",
  );
  assert.ok(!stored.includes(code));
});

test("a link that was used shows one message, and the page offers other ways to sign in", async (visit) => {
  const { page, service, expects } = visit;
  const link = await linkFor(service, "twice");
  await page.goto(link);
  await page.getByRole("button", { name: "Open my account" }).click();
  await signOut(page);
  await page.getByRole("heading", { name: "Inkwell" }).waitFor();
  await page.goto("about:blank");
  expects("401 POST /api/session");
  await page.goto(link);
  await page.getByRole("button", { name: "Open my account" }).click();
  await page.getByText("This link is not valid.").waitFor();
  await page.getByLabel("API key").waitFor();
});

test("an operator makes a link on the page of the account", async (visit) => {
  const { page, service } = visit;
  await service.call("POST", "/admin/accounts", { id: "shown", plan: "starter" });
  await open(visit, "/accounts/shown");
  await choose(page, "Invite a person");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("E-mail").fill("shown@x.example");
  await submit(page);
  const link = await dialog.getByLabel("Link of the invitation").inputValue();
  assert.match(link, /#invite=[\w-]{43}$/);
  await dialog.getByRole("button", { name: "Done" }).click();
  await page.getByText("nobody has used it yet").waitFor();
  await page.getByRole("navigation", { name: "Topics of the account" }).getByText("Keys").click();
  await page.getByText("inkwell key create shown").waitFor();
});
