/**
 * Running requests in the console, with the real engine: its miniature model, or the model of
 * INKWELL_TEST_MODEL.
 */
import assert from "node:assert/strict";
import { browserTests } from "../fixtures/browser.ts";
import { confirmed, open } from "../fixtures/console.ts";
import { openStream } from "../fixtures/http-stream.ts";
import { assertSoundLedger } from "../fixtures/ledger-file.ts";
import { configure } from "../fixtures/program.ts";
import { endless } from "../fixtures/running-requests.ts";
import { until } from "../fixtures/until.ts";

const { INKWELL_TEST_MODEL: model } = process.env;
const test = browserTests(
  model === undefined ? {} : { fill: async (folder) => configure(folder, { model: { source: model } }) },
);

test("stops a runaway request: its client gets an error, and pays for the tokens so far", async (visit) => {
  const { page, service } = visit;
  const stream = await openStream({ url: service.apiUrl, key: service.key, ...endless });
  await open(visit, "");
  const row = page.getByRole("row").filter({ has: page.getByRole("link", { name: "default" }) });
  const stop = row.getByRole("button", { name: `Stop the request ${stream.requestId}` });
  await stop.click();
  // Nothing has happened before the confirmation.
  await page.getByRole("button", { name: "Cancel" }).click();
  await stop.click();
  await page.getByRole("button", { name: "Stop the request", exact: true }).click();
  await confirmed(page, "The request is stopped.");
  await stop.waitFor({ state: "detached" });
  const events = await stream.rest();
  const last = events.at(-1);
  assert.ok(typeof last === "object" && last.error?.code === "request_stopped", JSON.stringify(last));
  await until("the receipt is there", async () => {
    const { data } = await service.call("GET", `/admin/usage?request_id=${stream.requestId}`);
    return Array.isArray(data) && data.length === 1;
  });
  await page.goto(`${service.url}/console/requests/${stream.requestId}`);
  await page.getByText("The operator stopped the request.").waitFor();
  const { data } = await service.call("GET", `/admin/usage?request_id=${stream.requestId}`);
  const [charged] = Object(data);
  assert.ok(charged.completion_tokens >= stream.texts && charged.cost_micro > 0, JSON.stringify(charged));
  assertSoundLedger(service.folder);
});

test("a request that ended meanwhile is not found, and the form says so", async (visit) => {
  const { page, service, expects } = visit;
  const stream = await openStream({ url: service.apiUrl, key: service.key, ...endless });
  await open(visit, "/accounts/default");
  await page.getByRole("button", { name: `Stop the request ${stream.requestId}` }).click();
  await page.getByRole("dialog").waitFor();
  stream.abort();
  await until("the request has ended", async () => {
    const { data } = await service.call("GET", "/admin/holds");
    return Array.isArray(data) && data.length === 0;
  });
  expects(`404 POST /admin/requests/${stream.requestId}/stop`);
  await page.getByRole("button", { name: "Stop the request", exact: true }).click();
  await page
    .getByRole("dialog")
    .getByRole("alert")
    .filter({ hasText: /request/i })
    .waitFor();
});
