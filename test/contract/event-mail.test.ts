/** Events by mail, to a real mail server, on every store. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { newKey } from "../../src/accounts/keys.ts";
import { type EventsConfig, mailTypes } from "../../src/config/events.ts";
import { EventSending } from "../../src/events/event-sending.ts";
import type { CapSettings } from "../../src/ledger/operations.ts";
import { defined } from "../../src/objects.ts";
import type { MailChoices } from "../../src/store/contacts.ts";
import { newPerson } from "../../src/store/people.ts";
import type { Store } from "../../src/store/store.ts";
import { backends, type Database } from "../fixtures/backends.ts";
import { testJobs } from "../fixtures/jobs.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import {
  noMailbox,
  type ReceivedMail,
  startMailServer,
  type TestMailServer,
} from "../fixtures/mail-server.ts";
import { day, minute, start } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";

const plan = planOf("one", 10, 0);

for (const backend of backends) {
  describe(`mail on ${backend.name}`, { skip: backend.skip ?? false }, () => {
    let database: Database;
    let store: Store;
    let server: TestMailServer;
    let mails: ReceivedMail[];
    const closing: (() => Promise<void>)[] = [];
    beforeEach(async () => {
      server = await startMailServer();
      ({ mails } = server);
      database = backend.create(plansOf(plan));
      store = await database.open({ thresholdPercents: [80, 90] });
      for (const [id, email] of [
        ["ada", "ada@example.edu"],
        ["bob", null],
      ] as const)
        await store.putAccount(
          { id, plan: plan.id, contact: { owner: "Ada\r\nBcc: eve@x", email } },
          { by: "test", dryRun: false },
        );
      await addKey(store, keyOf("key", "ada"));
    });
    afterEach(async () => {
      for (const close of closing.splice(0)) await close();
      await server[Symbol.asyncDispose]();
      await database.remove();
    });

    function send(
      change: Partial<NonNullable<EventsConfig["mail"]>> = {},
      requestMs = 200_000,
    ): EventSending {
      const jobs = testJobs();
      const { port } = server;
      const sending = new EventSending({
        store,
        catalog: { all: () => [] },
        jobs,
        node: "a",
        onAttempt: () => {},
        portalUrl: "https://portal.example.edu",
        // A mail that took too long would be sent again when the clock of the test has moved.
        times: {
          everyMs: 20,
          modelsEveryMs: 1000,
          slowEveryMs: 50,
          claimMs: minute,
          requestMs,
          mailMs: 200_000,
        },
        logger: { info: () => {}, error: () => {} },
      });
      sending.configure({
        thresholdPercents: [80, 90],
        expiringMs: 7 * day,
        networks: [],
        endpoints: [],
        mail: {
          host: "127.0.0.1",
          port,
          tls: "none",
          user: null,
          password: null,
          templates: null,
          from: "Inkwell <inkwell@example.edu>",
          operators: ["ops@example.edu"],
          // Each test has a key before it begins to send.
          types: mailTypes.filter((type) => type !== "key.created"),
          ...change,
        },
      });
      closing.push(async () => {
        await sending.close();
        await jobs.stop();
      });
      return sending;
    }

    async function states(): Promise<string[]> {
      const rows = await store.events.deliveries({ endpoint: "mail", limit: 100 });
      return rows.map(({ type, state }) => `${type} ${state}`).reverse();
    }

    async function problem(): Promise<string | null> {
      return (await store.events.endpoints([{ name: "mail" }]))[0]?.problem ?? null;
    }

    async function choose(contact: MailChoices): Promise<void> {
      const draft = { id: "ada", plan: null, contact: defined(contact) };
      await store.putAccount(draft, { by: "test", dryRun: false });
    }

    async function spend(id: string, amount: number): Promise<void> {
      await store.commit([hold(id, credits(amount)), settle(id, credits(amount))]);
    }

    test("an account gets one mail of a kind a day, whatever it says", async () => {
      send();
      await spend("r1", 8);
      await until("it is sent", () => mails.length === 1);
      const [mail] = mails;
      assert.deepEqual([mail?.from, mail?.to], ["inkwell@example.edu", ["ada@example.edu"]]);
      assert.match(mail?.text ?? "", /^Subject: Credits of ada are low: 80 % are spent\r$/m);
      assert.match(
        mail?.text ?? "",
        /80 % of the base credits of your account ada are spent\. 2 credits of 10 are left\./,
      );
      // A name with line ends brings no header.
      assert.match(mail?.text ?? "", /^Hello Ada Bcc: eve@x,\r$/m);
      await spend("r2", 1);
      await until("the next one is skipped", async () => (await states()).includes("balance.low skipped"));
      await spend("r3", 1);
      await until("another kind is sent", () => mails.length === 2);
      assert.match(mails[1]?.text ?? "", /^Subject: The credits of ada are used up\r$/m);
      database.clock.advance(day);
      await spend("r4", 8);
      await until("it is sent the next day", () => mails.length === 3);
    });

    test("a new operator key and a new role have a mail each, and keys of the portal one a day", async () => {
      const sending = send({ types: mailTypes.slice() });
      const issue = async (n: number, by: string) => {
        const { key: _, row } = newKey("ada", { id: `key${n}` });
        const settings = { caps: [], creator: null, keysMax: null };
        await store.commit([{ kind: "issue", account: "ada", key: row.id, row, ...settings, by }]);
      };
      const identity = { issuer: "https://id.example", sub: "1", name: "Eve", email: "eve@example.edu" };
      const person = newPerson({ ...identity, emailVerified: true }, database.clock.get());
      await store.addPerson({ ...person, account: "ada", accountBy: "owner" });
      const by = `person:${person.id}`;
      const operator = newPerson({ ...identity, sub: "2", emailVerified: true }, database.clock.get());
      await store.addPerson(operator);
      // A person without the account makes keys as an operator.
      await issue(1, `person:${operator.id}`);
      await issue(2, by);
      await issue(3, "key:key2");
      await until("one of them is sent", async () => (await states()).length === 4 && mails.length === 1);
      assert.deepEqual(mails[0]?.to, ["ada@example.edu"]);
      assert.match(mails[0]?.text ?? "", /The API key key2 \(-\) of your account ada was made in the portal/);
      for (const key of ["opkey_1", "opkey_2"])
        await sending.access("operator.key_created", { key, name: "ci", role: "owner", by }, key);
      for (const role of ["viewer", "owner"])
        await sending.access("operator.role_given", { person: by, role }, `${by} ${role}`);
      await until("they are sent", () => mails.length === 5);
      for (const { to } of mails.slice(1)) assert.deepEqual(to, ["ops@example.edu", "eve@example.edu"]);
      assert.match(mails[2]?.text ?? "", /made the operator key opkey_2 \(ci\) with the role owner/);
      assert.match(mails[3]?.text ?? "", /the role viewer since/);
      assert.match(mails[4]?.text ?? "", /the role owner since/);
    });

    test("a mail about several thresholds that are reached at once has the share that is spent", async () => {
      send();
      await spend("r1", 10);
      await until("both kinds are sent", () => mails.length === 2);
      assert.match(mails[0]?.text ?? "", /^Subject: Credits of ada are low: 100 % are spent\r$/m);
      assert.match(
        mails[0]?.text ?? "",
        /^100 % of the base credits of your account ada are spent\. 0 credits/m,
      );
    });

    test("a mail about additional credits that are used up says so", async () => {
      const payment = { payment: "p1", amountMicro: credits(2), by: "test" } as const;
      await store.commit([{ kind: "topup", account: "ada", ...payment }]);
      send({ types: ["balance.low"] });
      await choose({ balanceLowMail: "off" });
      await spend("r1", 10);
      await until("base is skipped", async () => (await states()).length === 2);
      await until("both are skipped", async () => (await states()).every((each) => each.endsWith("skipped")));
      await choose({ balanceLowMail: "on" });
      await spend("r2", 2);
      await until("it is sent", () => mails.length === 1);
      assert.match(mails[0]?.text ?? "", /^100 % of the additional credits of your account ada are spent\./m);
    });

    test("an address is one mailbox, whatever its characters", async () => {
      const setAddress = (email: string) =>
        store.putAccount({ id: "ada", plan: null, contact: { email } }, { by: "test", dryRun: false });
      await setAddress("ada,eve@example.edu");
      send({ types: ["balance.low"] });
      await spend("r1", 8);
      await until("it is recorded", async () => (await states()).includes("balance.low delivered"));
      assert.deepEqual(mails[0]?.to, ['"ada,eve"@example.edu']);
      await setAddress("(eve@example.edu)");
      database.clock.advance(2 * day);
      await spend("r2", 8);
      await until("it is refused", async () => {
        const [row] = await store.events.deliveries({ endpoint: "mail", limit: 1 });
        return row?.status === 501;
      });
    });

    test("an account gets no mail of the kinds that it has switched off", async () => {
      send();
      await choose({ balanceLowMail: "off" });
      await spend("r1", 8);
      await until("it is skipped", async () => (await states()).includes("balance.low skipped"));
      const [skipped] = await store.events.deliveries({ endpoint: "mail", limit: 100 });
      assert.equal(skipped?.answer, "the account does not want it");
      await spend("r2", 2);
      await until("another kind is sent", () => mails.length === 1);
      assert.match(mails[0]?.text ?? "", /^Subject: The credits of ada are used up\r$/m);
      assert.match(mails[0]?.text ?? "", /You can switch this mail off at https:\/\/portal\.example\.edu\./);
      // A skipped mail is not the one of the day.
      await choose({ balanceLowMail: "on" });
      database.clock.advance(day);
      await spend("r3", 8);
      await until("it is sent again", () => mails.length === 2);
    });

    test("a mail of the day before a restart counts", async () => {
      send();
      await spend("r1", 8);
      await until("it is recorded", async () => (await states()).includes("balance.low delivered"));
      await closing.shift()?.();
      send();
      await spend("r2", 1);
      await until("the next one is skipped", async () => (await states()).includes("balance.low skipped"));
      assert.equal(mails.length, 1);
    });

    const cap = { name: "day", every: "P1D", amountMicro: credits(5), byOperator: true };
    const setCaps = (op: string, caps: CapSettings[]) =>
      store.commit([{ kind: "key", account: "ada", key: "key", op, set: { caps }, by: "test" }]);

    test("caps have a mail of their own, which people switch off alone", async () => {
      await setCaps("b", [cap]);
      send();
      await choose({ balanceCapMail: "off" });
      await spend("r1", 4);
      await until("it is skipped", async () => (await states()).includes("balance.low skipped"));
      assert.equal(mails.length, 0);
      await choose({ balanceCapMail: "on" });
      await spend("r2", 0.5);
      await until("it is sent", () => mails.length === 1);
      assert.match(mails[0]?.text ?? "", /^Subject: The cap day of ada is nearly reached: 90 %\r$/m);
      assert.match(
        mails[0]?.text ?? "",
        /90 % of the cap day of your key key are spent\. 0\.5 credits of 5 are/,
      );
      // The mail about the cap does not stand for that about the balance.
      await setCaps("c", []);
      await spend("r3", 4);
      await until("that about the balance is sent", () => mails.length === 2);
      assert.match(mails[1]?.text ?? "", /^Subject: Credits of ada are low: /m);
    });

    test("mail about caps can be off for everybody", async () => {
      await setCaps("b", [cap]);
      send({ types: ["balance.low"] });
      await spend("r1", 4);
      await until("it is skipped", async () => (await states()).includes("balance.low skipped"));
      await spend("r2", 0.5);
      await until("so is the next", async () => (await states()).length === 2);
      assert.equal(mails.length, 0);
    });

    test("operators get mail about the service", async () => {
      send();
      const broken = ["one rule", "another rule"].map((invariant) => ({ invariant, rows: [] }));
      await store.recordAudit({ checkedMs: database.clock.get(), journalRows: 3, broken });
      await until("it is sent", () => mails.length === 1);
      assert.deepEqual(mails[0]?.to, ["ops@example.edu"]);
      assert.match(mails[0]?.text ?? "", /found 2 broken rules/);
    });

    test("operators get one mail of a model a day, also if the service is restarted", async () => {
      const down = (model: string, node: string) =>
        store.events.add({
          type: "model.down",
          atMs: store.times().atMs,
          data: { model, node },
          account: null,
          cause: `${model} ${node}`,
        });
      send();
      await down("small", "node-1");
      await until("it is recorded", async () => (await states()).includes("model.down delivered"));
      await closing.shift()?.();
      send();
      await down("small", "node-2");
      await until("the next one is skipped", async () => (await states()).includes("model.down skipped"));
      await down("large", "node-2");
      await until("that of another model is sent", () => mails.length === 2);
      database.clock.advance(day);
      await down("small", "node-3");
      await until("it is sent the next day", () => mails.length === 3);
    });

    test("a key that expires soon is one mail", async () => {
      const expiresMs = database.clock.get() + day;
      await addKey(store, keyOf("soon", "ada", { name: "laptop", expiresMs, hash: "3".repeat(64) }));
      send();
      await until("it is sent", () => mails.length === 1);
      assert.match(mails[0]?.text ?? "", /The API key soon \(laptop\) of your account ada expires on 2026-/);
      database.clock.advance(minute);
      await until("the search has run again", async () => (await states()).length === 1);
      assert.equal(mails.length, 1);
      await addKey(store, keyOf("next", "ada", { name: "phone", expiresMs, hash: "4".repeat(64) }));
      await until("that of another key is sent", () => mails.length === 2);
    });

    test("kinds that are off, and accounts without an address, get none", async () => {
      send({ types: ["balance.exhausted"] });
      await spend("r1", 8);
      await addKey(store, keyOf("k2", "bob", { hash: "4".repeat(64) }));
      await store.commit([hold("r2", credits(10), { account: "bob", key: "k2" })]);
      await store.commit([settle("r2", credits(10), { account: "bob" })]);
      await until("it is skipped", async () => (await states()).includes("balance.exhausted skipped"));
      assert.deepEqual(await states(), ["balance.exhausted skipped"]);
    });

    test("a file replaces a text", async () => {
      const folder = mkdtempSync(join(tmpdir(), "inkwell-mail-"));
      closing.push(async () => rmSync(folder, { recursive: true }));
      writeFileSync(
        join(folder, "balance.low.txt"),
        "Guthaben {account}\n\nNoch {left} von {of}. {unknown}\n",
      );
      send({ templates: folder });
      await spend("r1", 8);
      await until("it is sent", () => mails.length === 1);
      assert.match(mails[0]?.text ?? "", /^Subject: Guthaben ada\r$/m);
      assert.match(mails[0]?.text ?? "", /^Noch 2 von 10\. \{unknown\}\r$/m);
    });

    test("a folder of texts that does not exist is a failure, and no mail has another text", async () => {
      const folder = join(mkdtempSync(join(tmpdir(), "inkwell-mail-")), "texts");
      closing.push(async () => rmSync(dirname(folder), { recursive: true }));
      send({ templates: folder });
      await spend("r1", 8);
      await until("it has failed", async () => (await problem()) !== null);
      assert.equal(await problem(), `the folder ${folder} of events.mail.templates does not exist`);
      mkdirSync(folder);
      database.clock.advance(6000);
      await until("it is sent", () => mails.length === 1);
    });

    test("a server that fails or refuses is tried again", async () => {
      server.refuses = (to) => ({ code: 451, message: `${to}: come back later` });
      send();
      await spend("r1", 8);
      await until("it has failed", async () => (await problem()) !== null);
      assert.match((await problem()) ?? "", /^451 .*\(address\): come back later/);
      server.refuses = () => noMailbox;
      database.clock.advance(minute);
      await until("it is refused", async () => (await problem())?.startsWith("550 ") === true);
      server.refuses = () => null;
      database.clock.advance(60 * minute);
      await until("it is sent", () => mails.length === 1);
    });

    test("a server that looks at a text for longer than a request may take gets one mail", async () => {
      const answer = Promise.withResolvers<void>();
      server.mayAnswer = answer.promise;
      send({}, 100);
      await spend("r1", 8);
      await until("the server has the mail", () => mails.length === 1);
      await sleep(300);
      answer.resolve();
      await until("it is delivered", async () => (await states()).includes("balance.low delivered"));
      assert.equal(mails.length, 1);
    });

    test("a reload leaves a mail under way to its end", async () => {
      const answer = Promise.withResolvers<void>();
      server.mayAnswer = answer.promise;
      const sending = send({}, 100);
      await spend("r1", 8);
      await until("the server has the mail", () => mails.length === 1);
      sending.configure(null);
      // Longer than a stop would wait for it.
      await sleep(300);
      assert.equal(await problem(), null);
      answer.resolve();
      await until("it is delivered", async () => (await states()).includes("balance.low delivered"));
    });

    test("a stop breaks a mail off that its server does not answer", async () => {
      const answer = Promise.withResolvers<void>();
      server.mayAnswer = answer.promise;
      const sending = send({}, 100);
      await spend("r1", 8);
      await until("the server has the mail", () => mails.length === 1);
      await sending.close();
      assert.match((await problem()) ?? "", /^the mail server had not answered when its time was over/);
      answer.resolve();
    });

    test("a mail of one account that is refused delays none of another", async () => {
      server.refuses = (to) => (to === "ada@example.edu" ? noMailbox : null);
      send();
      await spend("r1", 8);
      await until("it is refused", async () => (await problem())?.startsWith("550 ") === true);
      await store.events.add({
        type: "audit.failed",
        atMs: start,
        data: { problems: 1 },
        account: null,
        cause: "1",
      });
      await until("another one is sent", () => mails.length === 1);
      assert.deepEqual(mails[0]?.to, ["ops@example.edu"]);
    });
  });
}
