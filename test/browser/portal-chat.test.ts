/** The chat of the portal: text, cost, stopping, refusals, and that nothing stays. */
import assert from "node:assert/strict";
import { browserTests } from "../fixtures/browser.ts";
import { confirmed } from "../fixtures/console.ts";
import { openStream } from "../fixtures/http-stream.ts";
import { assertSoundLedger } from "../fixtures/ledger-file.ts";
import { keyOf, openPortal } from "../fixtures/portal-pages.ts";
import { endless } from "../fixtures/running-requests.ts";
import { ofRelease } from "../fixtures/thorough.ts";

const test = browserTests({ pages: "portal" });
const releaseTest = ofRelease(test);

test("answers, shows what each turn cost, and forgets the conversation", async (visit) => {
  const { page, service } = visit;
  const { id, secret } = await keyOf(service, "default", { name: "chatting" });
  await openPortal(visit, "/chat", secret);
  await page.getByText(/credits per million prompt tokens/).waitFor();
  for (const text of ["Say <b>hello</b>", "Again"]) {
    await page.getByLabel("Message").fill(text);
    await page.keyboard.press("Enter");
    await page.getByText(text, { exact: true }).waitFor();
    await page.getByRole("button", { name: "Send" }).waitFor();
  }
  assert.equal(await page.getByText(/^This turn cost/).count(), 2);
  const { data } = await service.call("GET", `/admin/usage?key=${id}`);
  const costs: number[] = Object(data).map((row: { cost_micro: number }) => row.cost_micro);
  assert.equal(costs.length, 2);
  const sum = costs.reduce((total, micro) => total + micro, 0) / 1_000_000;
  await page.getByText(`Conversation: ${sum} credits`).waitFor();
  await page.reload();
  await page.getByLabel("Message").waitFor();
  assert.equal(await page.getByText("Again").count(), 0);
});

test("stops an answer, and shows what was generated and what it cost", async (visit) => {
  const { page, service } = visit;
  const { id, secret } = await keyOf(service, "default", { name: "stopping" });
  // Log-probabilities slow the miniature model down, which answers in an instant.
  await page.route("**/api/chat", async (route) => {
    const { content: _content, ...slow } = endless;
    await route.continue({ postData: JSON.stringify({ ...route.request().postDataJSON(), ...slow }) });
  });
  await openPortal(visit, "/chat", secret);
  await page.getByLabel("Longest answer (tokens)").fill("4000");
  await page.getByLabel("Message").fill(endless.content);
  await page.keyboard.press("Enter");
  await page.locator(".card .plain:not(:empty)").waitFor();
  // On a busy machine the answer might end before the click.
  const engine = service.program.enginePid();
  process.kill(engine, "SIGSTOP");
  try {
    await page.getByRole("button", { name: "Stop" }).click();
  } finally {
    process.kill(engine, "SIGCONT");
  }
  await page.getByText("You stopped the answer. It costs what was generated.").waitFor();
  await page.getByText(/^This turn cost/).waitFor();
  const { data } = await service.call("GET", `/admin/usage?key=${id}`);
  const [receipt] = Object(data);
  assert.equal(receipt.ending, "client_gone");
  await page.getByText(`This turn cost ${receipt.cost_micro / 1_000_000} credits`).waitFor();
  await openPortal(visit, "/requests", secret);
  await page.getByText("aborted").waitFor();
  assertSoundLedger(service.folder);
});

test("a key stops its own request, and the receipt says who stopped it", async (visit) => {
  const { page, service } = visit;
  const { secret } = await keyOf(service, "default", { name: "stopping", portal: "own" });
  const stream = await openStream({ url: service.apiUrl, key: secret, ...endless });
  await openPortal(visit, "/requests", secret);
  await page.getByRole("button", { name: `Stop the request ${stream.requestId}` }).click();
  await page.getByRole("button", { name: "Stop the request", exact: true }).click();
  await confirmed(page, "The request is stopped.");
  const last = (await stream.rest()).at(-1);
  assert.ok(typeof last === "object" && last.error?.code === "request_stopped", JSON.stringify(last));
  await page.getByText("Nothing runs now.").waitFor();
  await page.getByRole("button", { name: "Refresh" }).click();
  await page.getByTitle("A key of the account stopped the request.").waitFor();
});

releaseTest("a cap that is reached is said with what to do, and the refused message stays", async (visit) => {
  const { page, service, expects } = visit;
  const spending_caps = [{ credits: 1, every: "P1D" }];
  const { secret } = await keyOf(service, "default", { name: "poor", spending_caps });
  await openPortal(visit, "/chat", secret);
  await page.getByLabel("Message").fill("one two three ".repeat(40));
  expects("402 POST /api/chat");
  await page.getByRole("button", { name: "Send" }).click();
  await page
    .getByRole("alert")
    .getByText(/Send a shorter prompt: .* Ask for a higher cap, or use another key\./)
    .waitFor();
  assert.match(await page.getByLabel("Message").inputValue(), /^one two three/);
  await page.getByLabel("Temperature").fill("hot");
  await page.getByRole("button", { name: "Send" }).click();
  await page
    .getByRole("alert")
    .getByText(/from 0 to 2/)
    .waitFor();
});
