/** A model whose upstream is away, as the console shows it before any caller asks. */
import { browserTests } from "../fixtures/browser.ts";
import { assertAccessible, assertFits, open } from "../fixtures/console.ts";
import { until } from "../fixtures/until.ts";

/** A server on port 9 would discard everything. Nothing listens there. */
const configuration = `models:
  big: { engine: upstream, url: "http://127.0.0.1:9/v1", model: vendor/big, price: { prompt: 1, completion: 2 } }
`;
const test = browserTests({ configuration });
const sentence = 'The model "big" is unavailable: none of its servers works.';

test("says on the overview that a model is unavailable, and on Health why", async (visit) => {
  const { page, service } = visit;
  await until("the probe has failed", async () => {
    const { warnings } = await service.call("GET", "/readyz");
    return Array.isArray(warnings) && warnings.length > 0;
  });
  await open(visit, "");
  const line = page.getByRole("status").getByRole("listitem").filter({ hasText: sentence });
  await line.getByRole("link", { name: "Health" }).click();
  await page.getByText(sentence).waitFor();
  const row = page
    .getByRole("region", { name: "Models with state" })
    .getByRole("row")
    .filter({ hasText: "big" });
  await row.getByText("unavailable", { exact: true }).waitFor();
  await row.getByText("down", { exact: true }).waitFor();
  await row.getByText(/http:\/\/127\.0\.0\.1:9\/v1: it cannot be reached: .*ECONNREFUSED/).waitFor();
  await page.setViewportSize({ width: 390, height: 800 });
  await assertFits(page);
  await assertAccessible(page);
});
