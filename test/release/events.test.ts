/** The page of events: receivers, what became of each event, and sending again. */
import assert from "node:assert/strict";
import { after } from "node:test";
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, dialogClosed, loaded, open, submit, twoPlans } from "../fixtures/console.ts";
import { freePort } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";
import { secrets, startReceiver, type WebhookReceiver } from "../fixtures/webhook-receiver.ts";

const port = await freePort();
let receiver: WebhookReceiver | null = null;
after(async () => await receiver?.close());

const test = browserTests({
  ...twoPlans,
  configuration: `${twoPlans.configuration}events:
  networks: ["127.0.0.0/8"]
  endpoints: { crm: { url: "http://127.0.0.1:${port}/", secret: ${secrets.current} } }
`,
});

test("shows events of a receiver that is away, and sends them when it is back", async (visit) => {
  const { page, service } = visit;
  await service.call("POST", "/admin/accounts", { id: "ada", plan: "student" }, 201);
  await until("it has failed", async () => {
    const { data } = await service.call("GET", "/admin/events/endpoints");
    return Array.isArray(data) && data[0]?.state === "failing";
  });
  await open(visit, "/events");
  await page.getByRole("cell", { name: "crm", exact: true }).waitFor();
  await page.getByRole("cell", { name: "failing", exact: true }).waitFor();
  const table = page.getByRole("table", { name: "Events and what became of them" });
  const row = table.getByRole("row").filter({ has: page.getByRole("cell", { name: "ada", exact: true }) });
  assert.match(await row.innerText(), /account\.opened\s+ada\s+pending/);
  await assertAccessible(page);

  receiver = await startReceiver(secrets.current, port);
  await page.getByRole("button", { name: "Send again" }).click();
  await page.getByRole("dialog").waitFor();
  await submit(page);
  await page.getByText(/events are sent again\./).waitFor();
  await dialogClosed(page);
  const sent = receiver;
  await until("it has arrived", () => sent.accepted.some(({ account }) => account === "ada"));
  await until("the page shows it", async () => {
    await page.getByRole("button", { name: "Refresh" }).click();
    await loaded(page);
    await page.getByLabel("Show").selectOption("delivered");
    await loaded(page);
    return /account\.opened\s+ada\s+delivered/.test(await row.innerText());
  });
});

test("sends one event again, with its id", async (visit) => {
  const { page } = visit;
  const sent = receiver;
  assert.ok(sent !== null);
  const [first] = sent.accepted;
  assert.ok(first !== undefined);
  await open(visit, "/events?endpoint=crm");
  await page.getByRole("button", { name: "Send again" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  await dialog.getByLabel("Id of one event").fill(first.id);
  await submit(page);
  await page.getByText("1 event is sent again.").waitFor();
  await until("it arrives", () => sent.accepted.filter(({ id }) => id === first.id).length === 2);
});
