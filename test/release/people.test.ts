/** The page of people: who has signed in, and what operators do with them. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { browserTests } from "../fixtures/browser.ts";
import {
  assertAccessible,
  assertFits,
  confirmed,
  dialogClosed,
  loaded,
  open,
  submit,
  twoPlans,
} from "../fixtures/console.ts";
import { addPerson, assertSoundLedger } from "../fixtures/ledger-file.ts";

const test = browserTests(twoPlans);
const name = "Ada <img src=x onerror=alert(1)>";
const email = "ada.with-a-long-address@department-of-mathematics.example.edu";

test("shows people as their issuer names them, and changes, exports and erases them", async (visit) => {
  const { page, service } = visit;
  await open(visit, "/people");
  await page.getByText("There is no person.").waitFor();
  const id = addPerson(service.folder, 1, { name, email });
  await service.call("POST", "/admin/accounts", { id: "ada", plan: "student", owner: name, email }, 201);
  await page.reload();
  await loaded(page);
  const row = page.getByRole("row").filter({ hasText: email });
  assert.match(await row.innerText(), /Ada <img src=x onerror=alert\(1\)>.*ada\.with-a-long/s);
  assert.equal(await page.locator("main img").count(), 0);
  await assertAccessible(page);
  for (const width of [360, 1280]) {
    await page.setViewportSize({ width, height: 800 });
    await assertFits(page);
  }

  const press = async (label: string) => {
    await page.getByRole("button", { name: label, exact: true }).click();
    await page.getByRole("dialog").waitFor();
  };
  await press(`Link an account to ${name}`);
  await page.getByLabel("Account").last().fill("ada");
  await submit(page);
  await confirmed(page, `Person ${id} has the account ada.`);
  await dialogClosed(page);
  await press(`Suspend ${name}`);
  await submit(page);
  await confirmed(page, `Person ${id} is suspended.`);
  await page.getByRole("cell", { name: "suspended", exact: true }).waitFor();
  await press(`Resume ${name}`);
  await submit(page);
  await confirmed(page, `Person ${id} may sign in.`);

  await row.getByRole("link", { name: "ada", exact: true }).click();
  const people = page.getByRole("table", { name: "People who have the account" });
  await people.getByText(email).waitFor();
  await page.getByRole("link", { name: "Change them" }).click();
  await loaded(page);
  assert.match(page.url(), /\/people\?account=ada$/);

  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: `Export the data of ${name}` }).click();
  const file = await (await saved).path();
  const data = JSON.parse(readFileSync(file, "utf8"));
  assert.deepEqual([data.person.email, data.account.id, data.sessions], [email, "ada", []]);

  await press(`Erase the data of ${name}`);
  await assertAccessible(page);
  await submit(page);
  await confirmed(page, `The data of person ${id} is erased.`);
  await page.getByRole("cell", { name: "erased", exact: true }).waitFor();
  assert.ok(!(await page.locator("main").innerText()).includes("Ada"));
  assert.equal((await service.call("GET", "/admin/accounts/ada")).email, null);
  await page.getByLabel("Account").fill("nobody");
  await page.getByLabel("Account").press("Enter");
  await page.getByText("No person is like this.").waitFor();
  assertSoundLedger(service.folder);
});
