/** `inkwell link`: what it prints, and what it asks before changes that are final. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Invitations } from "../../src/accounts/invitations.ts";
import { Joins } from "../../src/accounts/joins.ts";
import { type CliLedger, cliLedger, refused, wrongUsage } from "../fixtures/cli-ledger.ts";

const token = "an-operator-token-0123456789";
const portalUrl = "https://ai.example";
const ledger = cliLedger(`plans:
  student: { base: { credits: 1000, every: P1D }, overage: { credits: 200, every: P1M } }
models:
  small: { engine: llama, source: default, price: { prompt: 10, completion: 30 } }
operator: { token: ${token} }
portal: { url: "${portalUrl}" }
`);

async function join({ store }: CliLedger, link: string, name: string) {
  const ofPeople = { store, token: async () => token, settings: () => ({ portalUrl, send: null }) };
  const joins = new Joins({ ...ofPeople, invitations: new Invitations(ofPeople) });
  const [, code = ""] = link.split("#join=");
  return await joins.join({ code, joinId: name, name });
}

const ends = ["--ends", "2100-12-20"];
const create = ["link", "create", "--name", "Informatics 1", "--plan", "student", "--seats", "2", ...ends];

test("a link is made, shown, changed, replaced and ended, and its accounts are closed", async () => {
  const made = await ledger.inkwell(...create, "--accounts-end", "2101-03-01");
  assert.equal(made.code, 0, made.stderr);
  assert.match(made.stdout, /^https:\/\/ai\.example\/#join=[\w-]{43}\n$/);
  assert.match(made.stderr, /has 2 seats, and works until 2100-12-21 00:00Z\. It is shown only now\./);
  const [, id = ""] = /link end (link_[0-9a-f]{16})/.exec(made.stderr) ?? [];
  const { account } = await join(ledger, made.stdout.trim(), "Ada\u0007 <b>");
  const list = await ledger.inkwell("link", "list");
  assert.match(list.stdout, new RegExp(`^${id} +Informatics 1 +student +open +1 +2 +2100-12-21 `, "m"));
  const show = await ledger.inkwell("link", "show", id);
  assert.equal(show.code, 0, show.stderr);
  assert.match(show.stdout, /1 of 2 seats taken, 0 with a finished request, 0 waiting for their mail/);
  assert.match(show.stdout, new RegExp(`^${account} +Ada <b> \\(unconfirmed\\) +.* active +no$`, "m"));
  const people = await ledger.inkwell("person", "list");
  assert.match(people.stdout, /Ada <b> \(unconfirmed\)/);
  const json = JSON.parse((await ledger.inkwell("link", "show", id, "--json")).stdout);
  assert.deepEqual(json.seats, { waiting: 0, joined: 1, used: 0 });
  const invited = await ledger.inkwell("account", "invite", String(account));
  assert.match(invited.stdout, /^https:\/\/ai\.example\/#invite=[\w-]{43}\n$/);
  assert.match(invited.stderr, /is for the person who has joined, works once/);

  wrongUsage(await ledger.inkwell("link", "set", id), /nothing to change/);
  const set = await ledger.inkwell("link", "set", id, "--seats", "3");
  assert.match(set.stderr, /has 3 seats, 1 of them taken/);
  const rotated = await ledger.inkwell("link", "rotate", id);
  assert.match(rotated.stdout, /^https:\/\/ai\.example\/#join=[\w-]{43}\n$/);
  assert.notEqual(rotated.stdout, made.stdout);
  refused(await ledger.inkwell("link", "end", id), /Ending the link of Informatics 1 is final/);
  const ended = await ledger.inkwell("link", "end", id, "--yes");
  assert.match(ended.stderr, /has ended\. 1 account stays as it is\./);
  refused(await ledger.inkwell("link", "close-accounts", id), /Closing the 1 account of Informatics 1/);
  const closed = await ledger.inkwell("link", "close-accounts", id, "--yes");
  assert.match(closed.stderr, /1 account of link link_[0-9a-f]{16} is closed\./);
  assert.match((await ledger.inkwell("account", "show", String(account))).stdout, /closed/);
});

test("what a link cannot be is refused with the option at fault", async () => {
  wrongUsage(await ledger.inkwell(...create.slice(0, -2)), /--ends/);
  wrongUsage(
    await ledger.inkwell(...create, "--seats", "0"),
    /--seats must be a whole number from 1 to 10000/,
  );
  refused(await ledger.inkwell(...create, "--domain", "uni.example"), /no mail server \(events\.mail\)/);
  refused(await ledger.inkwell(...create, "--plan", "gone"), /gone/);
  refused(await ledger.inkwell(...create, "--ends", "2020-01-01"), /--ends must be after now/);
  const early = await ledger.inkwell(...create, "--accounts-end", "2099-01-01");
  refused(early, /--accounts-end must not be before the end of the link: /);
});
