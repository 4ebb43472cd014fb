/** `inkwell person`: lists, links, suspends, exports and erases people. */
import assert from "node:assert/strict";
import { beforeEach, describe, test } from "node:test";
import { Ledger } from "../../src/ledger/ledger.ts";
import type { PersonRow } from "../../src/store/people.ts";
import { openTerminal } from "../fixtures/cli-host.ts";
import { cliLedger, refused, twoPlans, wrongUsage } from "../fixtures/cli-ledger.ts";
import { personRow } from "../fixtures/person-rows.ts";

const ledger = cliLedger(`${twoPlans}
sign_in:
  issuer: https://login.example
  client_id: inkwell
  operators: [{ email: Ada@x.example, role: support }]
`);
const id = "person_00000000000000aa";
const json = async (...argv: string[]) => await ledger.documentOf("person", ...argv);

const person = (n: number, parts: Partial<PersonRow> = {}) =>
  personRow(n, { emailVerified: true, seenMs: ledger.nowMs, createdMs: ledger.nowMs, ...parts });

describe("inkwell person", () => {
  beforeEach(async () => {
    await ledger.store.addPerson(
      person(0xaa, {
        name: "Ada\u202e",
        email: "ada@x.example",
        roleRule: "support email ada@x.example",
        roleMatchedMs: ledger.nowMs,
      }),
    );
    await ledger.openAccount("alice");
  });

  test("lists people with their accounts and states, and names as text", async () => {
    const { stdout } = await ledger.inkwell("person", "list");
    assert.match(stdout, /^ID +NAME +E-MAIL +ROLE +ACCOUNT +LAST SIGN-IN +STATE\n/);
    assert.match(stdout, /person_00000000000000aa +Ada\\u202e +ada@x\.example +support +- +.* active\n/);
    await ledger.store.addPerson(
      person(0xbb, { roleRule: "support group gone", roleMatchedMs: ledger.nowMs }),
    );
    assert.match(
      (await ledger.inkwell("person", "list")).stdout,
      /person_00000000000000bb +sub-187 +- +- +-/,
    );
    assert.partialDeepStrictEqual(await json("list"), [
      { id, role: "support", email: "ada@x.example", erased_at: null },
      { role: null },
    ]);
    const none = await ledger.inkwell("person", "list", "--account", "alice");
    assert.deepEqual([none.stdout, none.stderr], ["", "No person matches.\n"]);
    await ledger.inkwell("person", "link", id, "alice");
    assert.partialDeepStrictEqual(await json("list", "--account", "alice"), [{ id, account: "alice" }]);
  });

  test("lists every page", async () => {
    for (let n = 0; n < 1500; n += 1) await ledger.store.addPerson(person(0x1000 + n));
    const listed = await json("list");
    assert.ok(Array.isArray(listed));
    assert.equal(new Set(listed.map((row) => row.id)).size, 1501);
  });

  test("links an account once, and names who did it", async () => {
    const linked = await ledger.inkwell("person", "link", id, "alice");
    assert.deepEqual([linked.code, linked.stderr], [0, `Person ${id} has the account alice.\n`]);
    assert.match(String((await ledger.store.person(id))?.accountBy), /^command_line:/);
    await ledger.openAccount("bob");
    refused(await ledger.inkwell("person", "link", id, "bob"), /has the account alice already/);
    refused(await ledger.inkwell("person", "link", "nobody", "bob"), /There is no person "nobody"/);
    wrongUsage(await ledger.inkwell("person", "link", id), /missing required argument 'account'/);
  });

  test("suspends and resumes", async () => {
    const suspended = await ledger.inkwell("person", "suspend", id);
    assert.match(suspended.stderr, /is suspended\. To end that: \.\/inkwell person resume person_/);
    assert.match((await ledger.inkwell("person", "list")).stdout, / suspended\n/);
    assert.partialDeepStrictEqual(await json("resume", id), { id, suspended_at: null });
  });

  test("exports one document, with and without --json", async () => {
    await ledger.inkwell("person", "link", id, "alice");
    const { stdout, stderr } = await ledger.inkwell("person", "export", id);
    assert.equal(stderr, "");
    assert.ok(!stdout.includes("\u202e"));
    const exported = JSON.parse(stdout);
    assert.partialDeepStrictEqual(exported, { person: { name: "Ada\u202e" }, account: { id: "alice" } });
    assert.deepEqual(await json("export", id), exported);
    refused(await ledger.inkwell("person", "export", "nobody"), /There is no person "nobody"/);
  });

  test("an export whose database fails is cut off, and the command fails", async () => {
    await ledger.inkwell("person", "link", id, "alice");
    ledger.store.journal = () => Promise.reject(new Error("the disk is gone"));
    const { code, stdout, stderr } = await ledger.inkwell("person", "export", id);
    assert.equal(code, 1);
    assert.match(stderr, /^The answer broke off before its end\./);
    assert.throws(() => JSON.parse(stdout));
  });

  test("erases after a confirmation only", async () => {
    refused(await ledger.inkwell("person", "erase", id), /is final.* Confirm it with --yes/);
    for (const [answer, isErased] of [
      ["n", false],
      ["y", true],
    ] as const) {
      const terminal = openTerminal(["person", "erase", id], {
        cwd: ledger.cwd,
        services: { openStore: async () => ({ store: ledger.store, ledger: new Ledger(ledger.store) }) },
      });
      await terminal.shows("Erase it? [y/N]");
      terminal.type(`${answer}\r`);
      assert.equal(await terminal.ended, isErased ? 0 : 1);
      const { erasedMs = null } = (await ledger.store.person(id)) ?? {};
      assert.equal(erasedMs !== null, isErased);
    }
    assert.partialDeepStrictEqual(await json("erase", id, "--yes"), {
      sub: `erased:${id}`,
      email: null,
    });
    assert.match((await ledger.inkwell("person", "list")).stdout, / erased\n/);
    refused(await ledger.inkwell("person", "resume", id), /is erased, which is final\. Nothing has changed/);
    refused(await ledger.inkwell("person", "erase", "nobody", "--yes"), /There is no person "nobody"/);
  });
});
