/** Changes of an operator to the keys of an account, and their effect on callers. */
import assert from "node:assert/strict";
import { type Answer, browserTests, type ConsoleService } from "../fixtures/browser.ts";
import {
  assertAccessible,
  assertFits,
  assertRefused,
  choose,
  dialogClosed,
  open,
  submit,
  twoPlans,
} from "../fixtures/console.ts";
import { ask } from "../fixtures/http-stream.ts";
import { ofRelease } from "../fixtures/thorough.ts";

const test = browserTests(twoPlans);
const releaseTest = ofRelease(test);

/** Opens an account with a key of these settings. Returns its id and its secret. */
async function openKey(
  service: ConsoleService,
  account: string,
  settings: object = {},
): Promise<{ id: string; secret: string }> {
  await service.call("POST", "/admin/accounts", { id: account, plan: "team" });
  const made = await service.call("POST", `/admin/accounts/${account}/keys`, {
    operation_id: `first-${account}`,
    name: "notebook",
    ...settings,
  });
  assert.ok(typeof made.id === "string" && typeof made.key === "string", JSON.stringify(made));
  return { id: made.id, secret: made.key };
}

/** Sends a request with a secret. Returns its status, and the code of its error. */
async function askWith(service: ConsoleService, key: string, modelId = "tutor"): Promise<string> {
  const response = await ask({ url: service.apiUrl, key, model: modelId, content: "Hi", max_tokens: 1 });
  const body: Answer = JSON.parse(await response.text());
  return response.ok ? "200" : `${response.status} ${Object(body.error).code}`;
}

releaseTest("changes the settings of a key, which its next request uses", async (visit) => {
  const { page, service, expects } = visit;
  const { id, secret } = await openKey(service, "set");
  assert.equal(await askWith(service, secret, "writer"), "200");
  await open(visit, "/accounts/set/keys");
  await page.getByRole("button", { name: "Edit the key notebook" }).click();
  const dialog = page.getByRole("dialog");
  assert.equal(await dialog.getByLabel("Name").inputValue(), "notebook");
  await dialog.getByLabel("Name").fill("<b>exercises</b>");
  await dialog.getByLabel("Budget in credits").fill("1,500");
  const begin = dialog.getByLabel("Refill of the budget");
  assert.equal(await begin.count(), 0, "a budget that is not there has no periods");
  await dialog.getByLabel("Budget period").selectOption("PT5H");
  assert.equal(await begin.count(), 0, "no calendar has periods of 5 hours");
  await dialog.getByLabel("Budget period").selectOption("P1W");
  await begin.selectOption("calendar");
  const zone = dialog.getByLabel("Time zone of the budget");
  await zone.fill("Berlin");
  expects(`400 PATCH /admin/keys/${id}`);
  await submit(page);
  await assertRefused(zone, /Europe\/Berlin|time zone/, { "Budget in credits": "1,500" });
  await zone.fill("Europe/Berlin");
  await dialog.getByLabel("tutor").check();
  await dialog.getByLabel("Expires at (UTC)").fill("2098-02-28T12:30");
  await dialog.getByLabel("Requests per minute").fill("90");
  await dialog.getByLabel("Tokens per minute").fill("50000");
  await dialog.getByLabel("Requests at once").fill("3");
  await dialog.getByLabel("In the portal").selectOption("account");
  await submit(page);
  await dialogClosed(page);
  const row = page.getByRole("row").filter({ hasText: "<b>exercises</b>" });
  await row.getByText(/1,500 of 1,500/).waitFor();
  await row.getByText("manages all keys").waitFor();
  const key = await service.call("GET", `/admin/keys/${id}`);
  const { name, models, expires_at, limits, portal } = key;
  assert.deepEqual(
    { name, models, expires_at, limits, portal },
    {
      portal: "account",
      name: "<b>exercises</b>",
      models: ["tutor"],
      expires_at: "2098-02-28T12:30:00.000Z",
      limits: { requests_per_minute: 90, tokens_per_minute: 50_000, concurrent: 3 },
    },
  );
  const [{ every, align, timezone }] = Object(key.spending_caps);
  assert.deepEqual([every, align, timezone], ["P1W", "calendar", "Europe/Berlin"]);
  assert.equal(await askWith(service, secret, "tutor"), "200");
  assert.match(await askWith(service, secret, "writer"), /^404|^403/);
  // Empty fields remove the settings again.
  await page.getByRole("button", { name: "Edit the key <b>exercises</b>" }).click();
  for (const label of ["Budget in credits", "Expires at (UTC)", "Requests per minute", "Tokens per minute"]) {
    await dialog.getByLabel(label).fill("");
  }
  await dialog.getByLabel("Budget period").selectOption("");
  await dialog.getByLabel("Requests at once").fill("");
  await dialog.getByLabel("tutor").uncheck();
  await submit(page);
  await dialogClosed(page);
  await row.getByText("never", { exact: true }).first().waitFor();
  const freed = await service.call("GET", `/admin/keys/${id}`);
  const none = { requests_per_minute: null, tokens_per_minute: null, concurrent: null };
  assert.deepEqual([freed.spending_caps, freed.expires_at, freed.limits], [[], null, none]);
  assert.equal(await askWith(service, secret, "writer"), "200");
});

test("several caps are rows, and a wrong one keeps what was typed", async (visit) => {
  const { page, service, expects } = visit;
  const spending_caps = [
    { credits: 300, every: "PT5H" },
    {
      name: "dear",
      credits: 40,
      every: "P1D",
      align: "calendar",
      timezone: "Europe/Berlin",
      models: ["wr*"],
    },
  ];
  const { id } = await openKey(service, "several", { spending_caps });
  await open(visit, "/accounts/several/keys");
  await page.getByText("300 of 300 left (5 hours), refills").waitFor();
  await page.getByText("40 of 40 left (dear), refills").waitFor();
  await page.getByRole("button", { name: "Edit the key notebook" }).click();
  const dialog = page.getByRole("dialog");
  const cap = (n: number) => dialog.getByRole("group", { name: `Spending caps, number ${n}` });
  const [budget, zone] = ["Budget in credits", "Time zone of the budget"];
  assert.equal(await dialog.getByLabel(budget).count(), 2);
  const shown = await Promise.all([budget, zone, "Name"].map((each) => cap(2).getByLabel(each).inputValue()));
  assert.deepEqual(shown, ["40", "Europe/Berlin", "dear"]);
  assert.equal(await cap(2).getByLabel("wr*").isChecked(), true);
  await assertFits(page);
  await cap(1).getByLabel(budget).fill("a lot");
  await submit(page);
  await assertRefused(cap(1).getByLabel(budget), /Enter a whole number/, {});
  await cap(1).getByLabel(budget).fill("200");
  await cap(2).getByLabel(zone).fill("Mars/Olympus");
  expects(`400 PATCH /admin/keys/${id}`);
  await submit(page);
  await dialog.getByText(/^Time zone of the budget must be/).waitFor();
  await cap(2).getByLabel(zone).fill("Europe/Berlin");
  for (const n of [3, 4]) {
    await dialog.getByRole("button", { name: "Add one" }).click();
    await cap(n).getByLabel(budget).fill("900");
    await cap(n).getByLabel("Budget period").selectOption({ label: "month" });
  }
  assert.equal(await dialog.getByRole("button", { name: "Add one" }).count(), 0);
  await cap(3).getByRole("button", { name: "Remove number 3" }).click();
  await assertAccessible(page);
  await submit(page);
  await dialogClosed(page);
  await page.getByText("900 of 900 left (month), refills").waitFor();
  const saved = await service.call("GET", `/admin/keys/${id}`);
  assert.deepEqual(
    Object(saved.spending_caps).map(({ name, credits }: { name: string; credits: number }) => [
      name,
      credits,
    ]),
    [
      ["PT5H", 200],
      ["dear", 40],
      ["P1M", 900],
    ],
  );
});

test("a change of the name keeps every other setting exactly", async (visit) => {
  const { page, service } = visit;
  const { id } = await openKey(service, "exact", {
    ...{ expires_at: "2098-02-28T12:30:45.678Z", models: ["writer", "tutor"] },
    spending_caps: [{ credits: 250, every: "P3D" }],
  });
  const before = await service.call("GET", `/admin/keys/${id}`);
  await open(visit, "/accounts/exact/keys");
  await page.getByRole("button", { name: "Edit the key notebook" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("renamed");
  await submit(page);
  await dialogClosed(page);
  await page.getByText("renamed").waitFor();
  assert.deepEqual(await service.call("GET", `/admin/keys/${id}`), { ...before, name: "renamed" });
});

test("refuses half a date, so that a key does not stay valid for ever", async (visit) => {
  const { page, service } = visit;
  const { id } = await openKey(service, "dated", { expires_at: "2098-02-28T12:30:00.000Z" });
  await open(visit, "/accounts/dated/keys");
  await page.getByRole("button", { name: "Edit the key notebook" }).click();
  const dialog = page.getByRole("dialog");
  const expires = dialog.getByLabel("Expires at (UTC)");
  await expires.fill("");
  await expires.focus();
  await page.keyboard.type("12");
  await submit(page);
  await assertRefused(expires, /Enter a date and a time/, { Name: "notebook" });
  assert.equal((await service.call("GET", `/admin/keys/${id}`)).expires_at, "2098-02-28T12:30:00.000Z");
});

releaseTest("replaces a leaked key at once, or with a day for its users", async (visit) => {
  const { page, service } = visit;
  const { id, secret: first } = await openKey(service, "leaked");
  await open(visit, "/accounts/leaked/keys");
  const rotate = async (present: string): Promise<string> => {
    await page.getByRole("button", { name: "Rotate the key notebook" }).click();
    const dialog = page.getByRole("dialog");
    await assertAccessible(page);
    await dialog.getByLabel("The present secret").selectOption({ label: present });
    await submit(page);
    // A key press does not lose the secret, which is shown once.
    await page.getByRole("button", { name: "Copy the secret" }).waitFor();
    for (let n = 0; n < 4; n += 1) await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Copy the secret" }).click();
    await page.getByText("Copied.").waitFor();
    const secret: string = await page.evaluate("navigator.clipboard.readText()");
    await page.getByRole("button", { name: "Done" }).click();
    await dialogClosed(page);
    assert.ok(!(await page.content()).includes(secret), "the page keeps no secret");
    return secret;
  };
  const second = await rotate("stays valid for a day");
  assert.deepEqual([await askWith(service, first), await askWith(service, second)], ["200", "200"]);
  const third = await rotate("ends now: it leaked");
  assert.deepEqual(
    [await askWith(service, first), await askWith(service, second), await askWith(service, third)],
    ["401 invalid_api_key", "401 invalid_api_key", "200"],
  );
  await page.getByText(`…${third.slice(-4)}`).waitFor();
  assert.equal((await service.call("GET", `/admin/keys/${id}`)).name, "notebook");
});

test("a new key needs its name only; other settings open with the keyboard, or with their error", async (visit) => {
  const { page, service } = visit;
  await openKey(service, "quick");
  await open(visit, "/accounts/quick/keys");
  const dialog = page.getByRole("dialog");
  const budget = dialog.getByLabel("Budget in credits");
  await page.getByRole("button", { name: "Create a key" }).click();
  await dialog.getByLabel("Name").fill("second");
  assert.equal(await budget.isVisible(), false);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await budget.waitFor();
  await assertAccessible(page);
  await budget.fill("a lot");
  await dialog.locator("summary").first().focus();
  await page.keyboard.press("Enter");
  await budget.waitFor({ state: "hidden" });
  await submit(page);
  await budget.waitFor();
  await assertRefused(budget, /whole number/, { Name: "second", "Budget in credits": "a lot" });
  await budget.fill("");
  await submit(page);
  await page.getByRole("button", { name: "Copy the secret" }).waitFor();
  const { data } = await service.call("GET", "/admin/accounts/quick/keys");
  const made = Object(data).find(({ name }: { name: string }) => name === "second");
  assert.deepEqual([made.spending_caps, made.models, made.expires_at, made.portal], [[], ["*"], null, "own"]);
});

releaseTest("revokes a key for good, and offers nothing more for it", async (visit) => {
  const { page, service } = visit;
  const { secret } = await openKey(service, "lost");
  await open(visit, "/accounts/lost/keys");
  await page.getByRole("button", { name: "Revoke the key notebook" }).click();
  await page.getByRole("button", { name: "Cancel" }).click();
  await dialogClosed(page);
  assert.equal(await askWith(service, secret), "200");
  await page.getByRole("button", { name: "Revoke the key notebook" }).click();
  await page.getByRole("button", { name: "Revoke for good" }).dblclick();
  await dialogClosed(page);
  await page.getByText("revoked", { exact: true }).waitFor();
  assert.equal(await askWith(service, secret), "401 invalid_api_key");
  for (const action of ["Edit", "Rotate", "Revoke"]) {
    assert.equal(await page.getByRole("button", { name: `${action} the key notebook` }).count(), 0, action);
  }
});

releaseTest("a closed account gets no new key, and its keys can be revoked", async (visit) => {
  const { page, service } = visit;
  const { secret } = await openKey(service, "shut");
  await open(visit, "/accounts/shut/keys");
  await choose(page, "Close for good");
  await submit(page);
  await page.getByRole("button", { name: "Close for good" }).last().click();
  await dialogClosed(page);
  await page.getByText("This account is closed").waitFor();
  await page.getByRole("button", { name: "Create a key" }).waitFor({ state: "detached" });
  assert.equal(await askWith(service, secret), "403 account_suspended");
  await page.getByRole("button", { name: "Revoke the key notebook" }).click();
  await submit(page);
  await dialogClosed(page);
  await page.getByText("revoked", { exact: true }).waitFor();
  assert.equal(await askWith(service, secret), "401 invalid_api_key");
});
