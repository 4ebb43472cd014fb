/** Joining a class by a link and a mail in a real browser: the mail takes the seat. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { browserOfTests } from "../fixtures/browser.ts";
import { noChromium } from "../fixtures/chromium.ts";
import { assertAccessible } from "../fixtures/console.ts";
import { startInvitations } from "../fixtures/invitations.ts";
import { linkIn } from "../fixtures/mail-server.ts";
import { until } from "../fixtures/until.ts";

const startBrowser = browserOfTests();

describe("a browser", { skip: noChromium ?? false }, () => {
  test("asks for a mail, whose link opens the account in which a key is made", async () => {
    const browser = await startBrowser();
    await using place = await startInvitations({ hasMail: true });
    const { id, code } = await place.link({ domain: "uni.example" });
    const seats = async () => {
      const { body } = await place.operator.get(`/admin/links/${id}`);
      return body.seats;
    };
    await using context = await browser.newContext();
    const page = await context.newPage();
    const send = page.getByRole("button", { name: "Send me the link" });
    await page.goto(`${place.portal.url}/#join=${"x".repeat(43)}`);
    await page.getByLabel("Your name").fill("Zoë Brown");
    await page.getByLabel("Your e-mail address").fill("zoe@uni.example");
    await send.click();
    await page.getByText("This link is not valid.").waitFor();
    await page.goto(`${place.portal.url}/#join=${code}`);
    await page.getByText("You get a mail with a link.").waitFor();
    await assertAccessible(page);
    await page.getByLabel("Your name").fill("Zoë Brown");
    await page.getByLabel("Your e-mail address").fill("zoe@other.example");
    await send.click();
    await page.getByText(/@uni\.example/).waitFor();
    assert.deepEqual(place.mail.mails, []);
    // What was typed stays.
    assert.equal(await page.getByLabel("Your name").inputValue(), "Zoë Brown");
    await page.getByLabel("Your e-mail address").fill("zoe@uni.example");
    await send.click();
    await page.getByText("A mail is on its way to zoe@uni.example.").waitFor();
    await until("the mail arrives", () => place.mail.mails.length === 1);
    assert.partialDeepStrictEqual(await seats(), { waiting: 1, joined: 0 });

    // It is opened on another device.
    await using otherDevice = await browser.newContext();
    const phone = await otherDevice.newPage();
    await phone.goto(linkIn(place.mail.mails[0]));
    await phone.getByRole("button", { name: "Open my account" }).click();
    await phone.getByRole("navigation", { name: "Sections" }).waitFor();
    assert.partialDeepStrictEqual(await seats(), { waiting: 0, joined: 1 });
    await phone.goto(`${place.portal.url}/keys`);
    await phone.getByRole("button", { name: "Create a key" }).click();
    await phone.getByRole("dialog").getByLabel("Name").waitFor();
  });
});
