/** In a real browser, with a real mail server: asking for a new link, and choosing mail. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser } from "playwright-core";
import { launchChromium, noChromium } from "../fixtures/chromium.ts";
import { assertAccessible } from "../fixtures/console.ts";
import { type InvitationPlace, startInvitations } from "../fixtures/invitations.ts";
import { linkIn } from "../fixtures/mail-server.ts";
import { until } from "../fixtures/until.ts";

describe("a browser", { skip: noChromium ?? false }, () => {
  const opened = new AsyncDisposableStack();
  let browser: Browser;
  let place: InvitationPlace;
  before(async () => {
    ({ browser } = opened.use(await launchChromium()));
    place = opened.use(await startInvitations({ hasMail: true, acceptsKeys: false }));
  });
  after(() => opened.disposeAsync());

  test("gets the same words for every address, and a mail with a link that works", async () => {
    await place.open("ada");
    await place.invite("ada");
    const context = await browser.newContext();
    try {
      const page = await context.newPage();
      await page.goto(`${place.portal.url}/`);
      const button = page.getByRole("button", { name: "Send me a new link" });
      await button.waitFor();
      await assertAccessible(page);
      for (const email of ["nobody@x.example", "ada@x.example"]) {
        await page.getByLabel("E-mail address").fill(email);
        await button.click();
        await page.getByText("If this address was invited, a mail with a new link is on its way.").waitFor();
      }
      await page.getByLabel("E-mail address").fill("no address");
      await button.click();
      await page.getByText("email must be an e-mail address").waitFor();
      await until("it is sent", () => place.mail.mails.length === 1);
      await page.goto("about:blank");
      await page.goto(linkIn(place.mail.mails[0]));
      await page.getByRole("button", { name: "Open my account" }).click();
      await page.getByRole("heading", { name: "Balance" }).waitFor();
      assert.deepEqual(place.mail.mails[0]?.to, ["ada@x.example"]);
      const mail = page.locator("section").filter({ has: page.getByRole("heading", { name: "Mail" }) });
      const low = mail.getByRole("switch", { name: "Mail about low credits" });
      assert.ok(await low.isChecked());
      await low.click();
      await page.getByText("The choice is saved.").waitFor();
      assert.equal((await place.service.store.contact("ada"))?.balanceLowMail, "off");
      await assertAccessible(page);
    } finally {
      await context.close();
    }
  });
});
