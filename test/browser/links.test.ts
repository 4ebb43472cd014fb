/** A class by one link in a real browser: from the operator's dialog to the keys of who joins. */
import assert from "node:assert/strict";
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, assertFits, open, signOut, submit } from "../fixtures/console.ts";
import { askApi } from "../fixtures/portal-pages.ts";

const test = browserTests({ pages: "both" });

const later = new Date(Date.now() + 30 * 86_400_000).toISOString();

function inputOf(name: string, seats: number) {
  return { operation_id: name, name, plan: "starter", seats, ends_at: later };
}

test("an operator makes a link, and whoever opens it joins, makes a key and turns a dot green", async (visit) => {
  const { page, service, context, expects } = visit;
  await open(visit, "/links");
  await page.getByText("There is no link.").waitFor();
  await page.getByRole("button", { name: "Make a link" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("Informatics 1");
  await dialog.getByLabel("Plan").fill("starter");
  await dialog.getByLabel("Seats").fill("3");
  await dialog.getByLabel(/Nobody can join after/).fill(later.slice(0, 16));
  await submit(page);
  const url = await dialog.getByLabel("Link for the people who join").inputValue();
  assert.ok(url.startsWith(`${service.portalUrl}/#join=`), url);
  await dialog.getByRole("button", { name: "Done" }).click();
  await page.getByRole("link", { name: "Informatics 1" }).click();
  await page.getByText("Nobody has joined yet.").waitFor();
  await page.getByRole("img", { name: "3 free" }).waitFor();

  const other = await context.newPage();
  const requests: string[] = [];
  other.on("request", (request) => requests.push(`${request.method()} ${request.url()}`));
  await other.goto(url);
  await other.getByRole("heading", { name: "Join" }).waitFor();
  await assertAccessible(other);
  await assertFits(other);
  assert.equal(other.url(), `${service.portalUrl}/`, "the address keeps no code");
  assert.ok(!requests.some((each) => each.startsWith("POST")), requests.join("\n"));
  expects("400 POST /api/session");
  await other.getByRole("button", { name: "Join", exact: true }).click();
  await other.getByText(/name must be/).waitFor();
  await other.getByLabel("Your name").fill("Zoë Brown");
  await other.getByRole("button", { name: "Join", exact: true }).click();
  await other.getByRole("button", { name: "Create a key" }).click();
  await other.getByRole("dialog").getByLabel("Name").fill("laptop");
  await submit(other);
  const secret = await other.getByRole("dialog").getByLabel("Secret of the key").inputValue();
  await page.getByRole("img", { name: "1 joined, 2 free" }).waitFor();
  assert.equal(await askApi(service, secret), 200);
  await page.getByRole("img", { name: "1 first request made, 2 free" }).waitFor();
  await page.getByText("Zoë Brown").waitFor();
  await assertAccessible(page);
  await assertFits(page);

  // The same browser is in the same account again, and takes no second seat.
  await other.goto("about:blank");
  await other.goto(url);
  await other.getByRole("heading", { name: "Balance" }).waitFor();
  await page.reload();
  await page.getByRole("img", { name: "1 first request made, 2 free" }).waitFor();
  await other.close();
});

test("a link that has ended or is full says so to whoever opens it", async (visit) => {
  const { page, service, expects } = visit;
  const made = await service.call("POST", "/admin/links", inputOf("Chemistry", 1));
  expects("403 POST /api/session", "403 POST /api/session");
  const join = async (name: string) => {
    await page.goto("about:blank");
    await page.goto(String(made.link));
    await page.getByLabel("Your name").fill(name);
    await page.getByRole("button", { name: "Join", exact: true }).click();
  };
  await join("Ada");
  await page.getByRole("heading", { name: "Keys" }).waitFor();
  await signOut(page);
  await page.getByLabel("API key").waitFor();
  await join("Bob");
  await page.getByText("All seats of this link are taken.").waitFor();
  await service.call("POST", `/admin/links/${made.id}/end`);
  await join("Bob");
  await page.getByText("This link has ended").waitFor();
  await page.getByRole("button", { name: "Sign in another way" }).click();
  await page.getByLabel("API key").waitFor();
});
