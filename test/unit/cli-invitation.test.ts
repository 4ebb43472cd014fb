/** `inkwell account invite` and `account import --invite`: links, files, mails and refusals. */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, beforeEach, describe, test } from "node:test";
import { Invitations } from "../../src/accounts/invitations.ts";
import { invitationIssuer } from "../../src/store/invitations.ts";
import { CliLedger, cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";
import { linkIn, noMailbox, startMailServer, type TestMailServer } from "../fixtures/mail-server.ts";
import { day } from "../fixtures/times.ts";

const plans = `plans:
  starter: { base: { credits: 1000, every: P1D }, overage: { credits: 200, every: P1M } }
models:
  small: { engine: llama, source: default, price: { prompt: 10, completion: 30 } }
operator: { token: an-operator-token-0123456789 }
`;
const portalUrl = "https://ai.example/portal";
const withPortal = `${plans}portal: { url: "${portalUrl}/" }\n`;

const codePattern = /^[\w-]{43}$/;

/** Exchanges a link as the portal does. */
async function exchange({ store }: CliLedger, link: string) {
  const token = async () => "an-operator-token-0123456789";
  const settings = () => ({ portalUrl, send: null });
  const [, code = ""] = link.split("#invite=");
  return await new Invitations({ store, token, settings }).exchange(code);
}

describe("with a portal", () => {
  const ledger = cliLedger(withPortal);
  const file = path.join(ledger.cwd, "accounts.csv");
  const links = path.join(ledger.cwd, "links.csv");
  beforeEach(() => rmSync(links, { force: true }));

  async function load(text: string, ...options: string[]) {
    writeFileSync(file, text);
    return await ledger.inkwell("account", "import", "accounts.csv", ...options);
  }
  const linesOf = () =>
    readFileSync(links, "utf8")
      .trimEnd()
      .split("\r\n")
      .slice(1)
      .map((line) => line.split(","));

  test("prints a link alone on stdout, which works once, for seven days", async () => {
    await ledger.openAccount("ada");
    const ran = await ledger.inkwell("account", "invite", "ada", "--email", "ada@x.example");
    assert.equal(ran.code, 0, ran.stderr);
    assert.match(ran.stdout, /^https:\/\/ai\.example\/portal\/#invite=[\w-]{43}\n$/);
    assert.match(
      ran.stderr,
      /for ada@x\.example, works once, until 2027-01-22 12:00Z[\s\S]*Anyone who has it/,
    );
    assert.equal((await ledger.store.contact("ada"))?.email, "ada@x.example");
    const person = await exchange(ledger, ran.stdout.trim());
    assert.partialDeepStrictEqual(person, {
      issuer: invitationIssuer,
      account: "ada",
      email: "ada@x.example",
    });
    await assert.rejects(exchange(ledger, ran.stdout.trim()), /This link is not valid/);
    const again = await ledger.documentOf("account", "invite", "ada");
    assert.partialDeepStrictEqual(again, { account: "ada", email: "ada@x.example" });
    ledger.nowMs += 7 * day;
    await assert.rejects(exchange(ledger, String(Object(again).link)), /This link is not valid/);
    const rows = JSON.stringify(await ledger.store.changes({ limit: 100 }));
    assert.ok(!rows.includes("#invite") && !rows.includes(String(Object(again).link).slice(-43)), rows);
  });

  test("is refused for accounts that cannot have a link", async () => {
    await ledger.openAccount("ada");
    const invite = (...words: string[]) => ledger.inkwell("account", "invite", ...words);
    refused(await invite("bob", "--email", "b@x.example"), /no account bob/);
    refused(await invite("ada"), /Account ada has no e-mail address\. Name one/);
    wrongUsage(await invite("ada", "--email", "nobody"), /--email must be an e-mail address/);
    assert.equal((await invite("ada", "--email", "ada@x.example")).code, 0);
    refused(await invite("ada", "--email", "eve@x.example"), /contact of account ada has another address/);
    refused(await invite("ada", "--send", "mail"), /no mail server \(events\.mail\)/);
    await ledger.inkwell("account", "close", "ada", "--yes");
    refused(await invite("ada"), /Account ada is closed/);
  });

  test("an import of 30 people writes 30 links, and a repetition invites those who have none", async () => {
    const people = Array.from(
      { length: 30 },
      (_, n) => `s${n + 1},starter,Student ${n + 1},s${n + 1}@x.example`,
    );
    const text = ["account,plan,owner,email", ...people, "none,starter,No address,", ""].join("\n");
    const ran = await load(text, "--invite", "links.csv");
    assert.equal(ran.code, 0, ran.stderr);
    assert.match(ran.stderr, /31 opened[\s\S]*Links in links\.csv: 30 made, 1 no address\./);
    assert.equal(statSync(links).mode & 0o777, 0o600);
    assert.match(readFileSync(links, "utf8"), /^account,email,link\r\n/);
    const rows = linesOf();
    assert.deepEqual(
      rows.map(([id, email]) => [id, email]),
      people.map((line) => [line.split(",")[0], line.split(",")[3]]),
    );
    const codes = rows.map(([, , link = ""]) => link.split("#invite=")[1] ?? "");
    assert.equal(new Set(codes).size, 30);
    assert.ok(codes.every((code) => codePattern.test(code)));
    assert.equal((await exchange(ledger, rows[4]?.[2] ?? "")).account, "s5");

    // Links that the file lists stay, and an account with another address gets another one.
    await ledger.inkwell("account", "set", "s7", "--email", "seven@x.example");
    const more = `${text}new,starter,New,new@x.example\n`;
    const continued = await load(more, "--invite", "links.csv");
    assert.match(continued.stderr, /Links in links\.csv: 29 listed, 2 made, 1 no address\./);
    assert.deepEqual(linesOf().slice(0, 30), rows);
    assert.deepEqual(
      linesOf()
        .slice(30)
        .map(([id, email]) => [id, email]),
      [
        ["s7", "seven@x.example"],
        ["new", "new@x.example"],
      ],
    );

    rmSync(links);
    const again = await load(text, "--invite", "links.csv");
    assert.match(again.stderr, /Links in links\.csv: 29 made, 1 used, 1 no address\./);
    assert.ok(linesOf().every(([id]) => id !== "s5"));
    await assert.rejects(exchange(ledger, rows[0]?.[2] ?? ""), /not valid/);
    assert.equal((await exchange(ledger, linesOf()[0]?.[2] ?? "")).account, "s1");
  });

  test("a dry run writes no links, and an import without a mail server opens nothing", async () => {
    const dry = await load(
      "account,plan,email\nada,starter,ada@x.example\n",
      "--invite",
      "links.csv",
      "--dry-run",
    );
    assert.equal(dry.code, 0, dry.stderr);
    assert.ok(!existsSync(links));
    const two = "account,plan,email\nada,starter,ada@x.example\nbob,starter,bob@x.example\n";
    for (const more of [[], ["--dry-run"]])
      refused(await load(two, "--invite", ...more), /^The configuration has no mail server/);
    assert.equal((await ledger.store.accounts({ limit: 9 })).length, 0);
  });

  test("config check shows where links lead", async () => {
    assert.match(
      (await ledger.inkwell("config", "check")).stdout,
      /^invitations +links to https:\/\/ai\.example\/portal\/$/m,
    );
  });
});

describe("without a portal", () => {
  const ledger = cliLedger(plans);

  test("an invitation is refused with one clear error", async () => {
    await ledger.openAccount("ada");
    refused(
      await ledger.inkwell("account", "invite", "ada", "--email", "ada@x.example"),
      /^Links need the URL of the portal, which is missing\. Set portal\.url/,
    );
    assert.equal((await ledger.store.contact("ada"))?.email ?? null, null);
    writeFileSync(path.join(ledger.cwd, "new.csv"), "account,plan,email\nbob,starter,bob@x.example\n");
    for (const more of [[], ["--dry-run"]])
      refused(
        await ledger.inkwell("account", "import", "new.csv", "--invite", "links.csv", ...more),
        /^Links need the URL of the portal/,
      );
    assert.deepEqual((await ledger.store.accounts({ limit: 9 })).length, 1);
    assert.ok(!existsSync(path.join(ledger.cwd, "links.csv")));
    assert.match(
      (await ledger.inkwell("config", "check")).stdout,
      /^invitations +impossible: there is no portal$/m,
    );
  });
});

test("config check reports a portal without a URL", async () => {
  const ledger = new CliLedger(`${plans}portal: {}\n`);
  const { stdout } = await ledger.inkwell("config", "check");
  assert.match(stdout, /^invitations +impossible: portal\.url is missing$/m);
  rmSync(ledger.cwd, { recursive: true });
});

describe("with a mail server", () => {
  let server: TestMailServer;
  let ledger: CliLedger;
  before(async () => {
    server = await startMailServer();
    ledger = new CliLedger(
      `${withPortal}events:\n  mail: { host: 127.0.0.1, port: ${server.port}, tls: none, from: ink@x.example }\n`,
    );
  });
  after(async () => {
    await server[Symbol.asyncDispose]();
    rmSync(ledger.cwd, { recursive: true });
  });

  test("an import mails links, and goes on after a mailbox that is refused", async () => {
    server.refuses = (to) => (to === "bob@x.example" ? noMailbox : null);
    const file = path.join(ledger.cwd, "accounts.csv");
    writeFileSync(
      file,
      "account,plan,owner,email\nada,starter,Ada L,ada@x.example\nbob,starter,,bob@x.example\ncarl,starter,,carl@x.example\n",
    );
    const ran = await ledger.inkwell("account", "import", "accounts.csv", "--invite");
    assert.equal(ran.code, 1);
    assert.match(ran.stderr, /^line 3: The mail server has not taken the mail to bob@x/m);
    assert.match(ran.stderr, /Links by mail: 2 made\./);
    assert.ok(!`${ran.stdout}${ran.stderr}`.includes("#invite="));
    assert.deepEqual(
      server.mails.map(({ to }) => to.join()),
      ["ada@x.example", "carl@x.example"],
    );
    const [mail] = server.mails;
    assert.match(
      mail?.text ?? "",
      /Hello Ada L,[\s\S]*works once, until 2027-01-22 12:00Z[\s\S]*taken for you/,
    );
    assert.equal((await exchange(ledger, linkIn(mail))).account, "ada");
  });

  test("a file replaces the text of the mail", async () => {
    server.mails.length = 0;
    const other = new CliLedger(
      `${withPortal}events:\n  mail: { host: 127.0.0.1, port: ${server.port}, tls: none, from: ink@x.example, templates: ./mail }\n`,
    );
    try {
      mkdirSync(path.join(other.cwd, "mail"));
      writeFileSync(path.join(other.cwd, "mail", "invitation.txt"), "Hallo {owner}\n\n{link} {other}\n");
      assert.equal((await other.inkwell("account", "create", "dora", "--plan", "starter")).code, 0);
      const sent = ["--email", "dora@x.example", "--send", "mail"];
      assert.equal((await other.inkwell("account", "invite", "dora", ...sent)).code, 0);
      assert.match(server.mails[0]?.text ?? "", /^Subject: Hallo dora\r$[\s\S]*#invite=[\w-]{43} \{other\}/m);
    } finally {
      rmSync(other.cwd, { recursive: true });
    }
  });

  test("--send mail prints no link", async () => {
    server.mails.length = 0;
    const ran = await ledger.inkwell("account", "invite", "carl", "--send", "mail");
    assert.deepEqual([ran.code, ran.stdout], [0, ""]);
    assert.match(ran.stderr, /^The invitation to account carl is mailed to carl@x\.example\.$/m);
    assert.equal((await exchange(ledger, linkIn(server.mails[0]))).account, "carl");
    assert.match((await ledger.inkwell("config", "check")).stdout, /by mail through 127\.0\.0\.1/);
  });
});
