/** A slow session on PostgreSQL delays only the accounts whose rows it has locked. */
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { StoreUnavailableError } from "../../src/errors.ts";
import { Ledger, type LedgerOptions } from "../../src/ledger/ledger.ts";
import { changeLogRow } from "../../src/store/change-log.ts";
import { newPerson } from "../../src/store/people.ts";
import { eraseChange, linkChange } from "../../src/store/person-changes.ts";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { PostgresCommits } from "../../src/store/postgres/commits.ts";
import { commitPool } from "../../src/store/postgres/connection-pool.ts";
import { databaseLimits } from "../../src/store/postgres/limits.ts";
import { commitQueuesMax, openPostgresStore } from "../../src/store/postgres/store.ts";
import type { Store } from "../../src/store/store.ts";
import { accountTable } from "../../src/store/tables.ts";
import { serverClock } from "../fixtures/clocks.ts";
import { hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf } from "../fixtures/ledger-rows.ts";
import { patience, patientSettings } from "../fixtures/patience.ts";
import { noPostgres, type Postgres, postgres } from "../fixtures/postgres.ts";
import { type OpenTransaction, openTransaction } from "../fixtures/postgres-session.ts";
import { childPlans as plans, startStoreChild } from "../fixtures/store-child.ts";
import { day, start } from "../fixtures/times.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";
import { until } from "../fixtures/until.ts";

const newPlan = planOf("new", 1, 1);
/** Accounts of both commit queues. */
const others = Array.from({ length: 8 }, (_, n) => `other-${n}`);

describe("rows that another session has locked", { skip: noPostgres ?? false }, () => {
  let server: Postgres;
  let database = "";
  let url = "";
  let store: Store;
  const sessions: OpenTransaction[] = [];

  before(async () => {
    server = await postgres();
  });
  beforeEach(async () => {
    database = await server.create();
    url = server.url(database);
    const { idle_in_transaction_session_timeout } = patientSettings;
    store = await openPostgresStore({ url, plans, settings: { idle_in_transaction_session_timeout } });
    for (const [n, account] of ["ada", ...others].entries()) {
      await store.commit([{ kind: "open", account, plan: "starter", by: "test" }]);
      await addKey(store, keyOf(keyIdOf(account), account, { hash: n.toString(16).padStart(64, "0") }));
    }
  });
  afterEach(async () => {
    await Promise.all(sessions.splice(0).map((session) => session[Symbol.asyncDispose]()));
    await store.close();
    assert.deepEqual((await auditDatabase(url, null)).broken, []);
    await server.drop(database);
  });

  function keyIdOf(account: string): string {
    return account === "ada" ? "key" : `key-of-${account}`;
  }

  /** Operations on a locked account wait for as long as a busy machine takes for the others. */
  function ledger(options: LedgerOptions = {}): Ledger {
    return new Ledger(store, { commitQueues: commitQueuesMax, ...patience, ...options });
  }

  /**
   * Runs the statements in a transaction that stays open until the function it returns is called.
   */
  async function lock(statements: string): Promise<() => Promise<void>> {
    const session = await openTransaction(url, statements);
    sessions.push(session);
    return () => session.rollback();
  }

  /** Returns how many sessions wait for a lock. */
  async function waiting(): Promise<number> {
    const rows = await server.sql(
      `select from pg_stat_activity where datname = '${database}' and wait_event_type = 'Lock'`,
    );
    return rows.length;
  }

  async function isWaiting(): Promise<boolean> {
    return (await waiting()) > 0;
  }

  /** Sends a request on each of the other accounts. */
  async function useOthers(by: Ledger, round: number): Promise<void> {
    await Promise.all(
      others.map(async (account) => {
        const id = `${account}-${round}`;
        const held = await by.apply(hold(id, credits(1), { account, key: keyIdOf(account) }));
        assert.equal(held.kind, "held");
        assert.equal((await by.apply(settle(id, 1000, { account }))).kind, "settled");
      }),
    );
  }

  const lockers: readonly [name: string, statements: string][] = [
    ["the account's row", "select from account where id = 'ada' for update"],
    ["the account's row, as a commit locks it", "select from account where id = 'ada' for no key update"],
    ["the row of its key", "select from api_key where account = 'ada' for update"],
    ["the row of its hold", "select from hold where account = 'ada' for update"],
  ];
  for (const [name, statements] of lockers) {
    test(`${name} locked: other accounts are answered at once, and the account when the lock is released`, async () => {
      await store.commit([hold("h1", credits(1)), hold("h2", credits(1), { ttlMs: 0 })]);
      await store.commit([{ kind: "expire", account: "ada", requestId: "h2" }]);
      const release = await lock(statements);
      const by = ledger();
      const answered: string[] = [];
      const adas = Promise.all([
        by.apply(settle("h2", 500)).then(() => answered.push("settle h2")),
        by.apply(settle("h1", 1000)).then(() => answered.push("settle h1")),
        by.apply(hold("h3", credits(2))).then(() => answered.push("hold h3")),
      ]);
      // Each commit queue waits for the row once, and never again.
      for (let round = 0; round < 5; round += 1) await useOthers(by, round);
      assert.deepEqual(answered, []);
      await release();
      await adas;
      assert.deepEqual(answered, ["settle h2", "settle h1", "hold h3"]);
      const base = (await store.accountSnapshot("ada"))?.account.base;
      assert.partialDeepStrictEqual(base, {
        amountMicro: credits(100),
        spentMicro: 1500,
        heldMicro: credits(2),
      });
    });
  }

  for (const isAlone of [false, true]) {
    const name = isAlone ? "asked for before all others" : "asked for together with others";
    test(`an account that another session is opening delays no other account, and is opened once: ${name}`, async () => {
      const release = await lock(
        `insert into account (${accountTable.list()})
         select 'new', ${accountTable.list().slice("id, ".length)} from account where id = 'ada'`,
      );
      const by = ledger();
      let isOpen = false;
      const opened = by
        .apply({ kind: "open", account: "new", plan: "starter", by: "test" })
        .then(({ kind }) => {
          isOpen = true;
          return kind;
        });
      if (isAlone) await until("it waits for the other session", isWaiting);
      for (let round = 0; round < 5; round += 1) await useOthers(by, round);
      assert.equal(isOpen, false);
      await release();
      assert.equal(await opened, "opened");
    });
  }

  test("a payment that another session is crediting delays no other account, and counts once", async () => {
    const release = await lock(
      `insert into credit_grant (account, seq, bucket, amount, spent, from_ms, payment)
       values ('other-0', 99, 'additional', 1, 0, 0, 'p1')`,
    );
    const by = ledger();
    let isAdded = false;
    const added = by
      .apply({ kind: "topup", account: "ada", payment: "p1", amountMicro: 5, by: "test" })
      .then((outcome) => {
        isAdded = true;
        return outcome;
      });
    for (let round = 0; round < 5; round += 1) await useOthers(by, round);
    assert.equal(isAdded, false);
    await release();
    assert.deepEqual(await added, { kind: "added", additionalMicro: 5, replayed: false });
  });

  test("commits and the plans do not wait for each other", async () => {
    // As a commit under way, or a dump.
    const reader = await lock("select from plan_file; select from plan_version");
    const kind = async () =>
      (await store.applyPlans(new Map([...plans, ["new", newPlan]]), { force: false, by: "test" })).kind;
    assert.equal(await kind(), "applied");
    await reader();
    const writer = await lock("lock table plan_file in exclusive mode");
    // If commits waited, none would be answered.
    await useOthers(ledger(), 0);
    await writer();
  });

  test("waits for short locks again after the stuck row is released", (t) =>
    unlessStalled(async () => {
      const pool = commitPool(url, 1);
      t.after(() => pool.end());
      const skipsForMs = 2000;
      const commits = new PostgresCommits(pool, serverClock, { skipsForMs });
      const timed = async (account: string) => {
        const beganMs = performance.now();
        const [outcome] = await commits.commit([
          { kind: "topup", account, payment: "1", amountMicro: 1, by: "test" },
        ]);
        assert.equal(outcome?.kind, "locked");
        return performance.now() - beganMs;
      };
      const releaseFirst = await lock("select from account where id = 'ada' for update");
      await timed("ada");
      await releaseFirst();
      const release = await lock("select from account where id = 'other-0' for update");
      try {
        // A locked row in this time is skipped, and does not extend the time.
        await sleep(skipsForMs / 2);
        await timed("other-0");
        await sleep(skipsForMs / 2 + 100);
        assert.ok((await timed("other-0")) > databaseLimits.commitLockMs * 0.9, "it was not waited for");
      } finally {
        await release();
      }
    }));

  test("rejects operations on an account that stays locked, and none of them was done", async () => {
    const release = await lock("select from account where id = 'ada' for update");
    const by = ledger({ giveUpMs: 400 });
    await assert.rejects(by.apply(hold("h1", credits(1))), (error) => {
      assert.ok(error instanceof StoreUnavailableError);
      assert.match(error.message, /locked a row of account ada/);
      return true;
    });
    await release();
    assert.equal((await store.accountSnapshot("ada"))?.account.seq, 4);
    assert.equal((await by.apply(hold("h1", credits(1)))).kind, "held");
  });

  test("commits wait for a stuck row only once", async () => {
    const release = await lock("select from account where id = 'ada' for update");
    const by = ledger({ giveUpMs: 300 });
    await assert.rejects(
      by.apply({ kind: "topup", account: "ada", payment: "1", amountMicro: 1, by: "test" }),
    );
    const tookMs: number[] = [];
    for (let n = 0; n < 20; n += 1) {
      const beganMs = performance.now();
      const outcomes = await store.commit([
        { kind: "topup", account: "ada", payment: "2", amountMicro: 1, by: "test" },
        { kind: "topup", account: "other-0", payment: `${n}`, amountMicro: 1, by: "test" },
      ]);
      assert.deepEqual(
        outcomes.map(({ kind }) => kind),
        ["locked", "added"],
      );
      tookMs.push(performance.now() - beganMs);
    }
    // Otherwise each commit waits for the whole limit, and the fastest one as well.
    assert.ok(Math.min(...tookMs) < databaseLimits.commitLockMs, tookMs.join());
    await release();
  });

  test("an exchange of an invitation, a link of a person and an erase lock nothing before the account", async () => {
    const [email, by, atMs] = ["ada@x.example", "owner", start];
    await store.putAccount({ id: "ada", plan: null, contact: { email } }, { by: "test", dryRun: false });
    const invitation = {
      account: "ada",
      email,
      hash: "1".repeat(64),
      by,
      createdMs: atMs,
      endsMs: atMs + day,
    };
    const logged = { kind: "invitation", account: "ada", before: null, after: { by }, by, atMs } as const;
    assert.ok(await store.invitations.add(invitation, changeLogRow(logged)));
    const [linked, stranger] = ["linked", "stranger"].map((sub) =>
      newPerson({ issuer: "https://login.example", sub }, atMs),
    );
    assert.ok(linked !== undefined && stranger !== undefined);
    for (const person of [linked, stranger]) await store.addPerson(person);
    const link = (id: string) =>
      store.linkPerson(id, { account: "ada", by, isFirst: false }, linkChange(id, "ada", { by, atMs }));
    assert.ok(await link(linked.id));
    const exchange = async () => {
      const person = { id: "person_0000000000000001", sub: "invited" };
      const change = () => linkChange(person.id, "ada", { by, atMs });
      return (
        (await store.invitations.exchange({ hash: invitation.hash, nowMs: atMs, person }, change)) !== null
      );
    };
    const erase = () => store.erasePerson(linked.id, atMs, eraseChange(linked.id, { by, atMs }));
    for (const change of [exchange, () => link(stranger.id), erase]) {
      const release = await lock("select from account where id = 'ada' for update");
      const changed = change();
      await until("the change waits", isWaiting);
      for (const table of ["invitation", "person", "account_contact"]) {
        await server.sql(`select from ${table} for update nowait`, database);
      }
      await release();
      assert.equal(await changed, true);
    }
  });

  test("a sign-in links no account that somebody gets while it waits", async () => {
    const other = await openPostgresStore({ url, plans });
    const link = async (node: Store, sub: string, by: string, isFirst: boolean) => {
      const person = await store.addPerson(newPerson({ issuer: "https://login.example", sub }, start));
      const change = linkChange(person.id, "ada", { by, atMs: start });
      return () => node.linkPerson(person.id, { account: "ada", by, isFirst }, change);
    };
    const byOperator = await link(store, "bob", "operator", false);
    const byEmail = await link(other, "eve", "email", true);
    const release = await lock("select from account where id = 'ada' for update");
    const first = byOperator();
    await until("the operator's link waits", async () => (await waiting()) === 1);
    const second = byEmail();
    await until("both wait", async () => (await waiting()) === 2);
    await release();
    assert.deepEqual(await Promise.all([first, second]), [true, false]);
    await other.close();
  });

  test("a write that loses a deadlock is done when the other one has ended", async () => {
    // The server looks for a deadlock once, so long after the wait has begun: after the release.
    const settings = { ...patientSettings, deadlock_timeout: 5000 };
    const losing = await openPostgresStore({ url, plans, settings });
    const release = await lock("select pg_advisory_xact_lock(1)");
    for (const account of ["ada", "other-0"])
      await store.events.add({ type: "key.expiring", atMs: start, data: {}, account, cause: account });
    await store.events.queue([{ name: "hook", types: new Set(["key.expiring"]) }]);
    const numbers = (await store.events.firsts("hook", "", 2)).map(({ number }) => number);
    const [one, two] = numbers;
    const touch = (number: number | undefined) =>
      `update event_delivery set answer = 'x' where number = ${number}`;
    const other = lock(
      `set deadlock_timeout = 200000; ${touch(two)}; select pg_advisory_xact_lock(1); ${touch(one)}`,
    );
    await until("the other one waits", async () => (await waiting()) === 1);
    const outcome = { state: "delivered", nextMs: 0, triedMs: start, status: 204, answer: "" } as const;
    const recorded = losing.events.record(
      "hook",
      numbers.map((number) => ({ number, attempts: 1, ...outcome })),
    );
    await until("both wait", async () => (await waiting()) === 2);
    await release();
    await (await other)();
    await recorded;
    await losing.close();
    assert.deepEqual(await store.events.firsts("hook", "", 2), []);
  });

  test("finds keys and balances while the revocation of a key waits for a locked account", async () => {
    const release = await lock("select from account where id = 'ada' for update");
    let isRevoked = false;
    const revoked = Array.from({ length: 8 }, async () => {
      const [outcome] = await store.commit([{ kind: "revoke", account: "ada", key: "key", by: "test" }]);
      // On a slow machine the wait may reach its limit.
      if (outcome?.kind !== "locked") isRevoked = true;
    });
    assert.equal((await store.findKey("1".padStart(64, "0")))?.key.account, "other-0");
    assert.equal((await store.accountSnapshot("other-0"))?.account.id, "other-0");
    assert.equal((await store.accounts({ limit: 1 })).length, 1);
    assert.equal(isRevoked, false);
    await release();
    await Promise.all(revoked);
  });

  test("a node frozen inside a transaction stops only its accounts, until the time limit", async (t) => {
    const rounds = 40;
    const child = startStoreChild(url, "child", rounds);
    t.after(() => child.kill());
    await child.printed(8);
    const isInside = async () => {
      const rows = await server.sql(
        `select from pg_stat_activity where datname = '${database}' and state = 'idle in transaction'`,
      );
      return rows.length > 0;
    };
    const hasLocked = async () => {
      const free = await server.sql("select from account where id = 'ada' for update skip locked", database);
      return free.length === 0;
    };
    const by = ledger();
    let attempts = 0;
    /**
     * Returns whether all others were answered while the node stood inside. On a busy machine its
     * time may be over before, or the server may still have had a statement of it to run.
     */
    const othersWereAnswered = async () => {
      attempts += 1;
      do {
        child.thaw();
        await sleep(5);
        child.freeze();
        await sleep(50);
      } while (!(await isInside()) || !(await hasLocked()));
      let isAnswered = false;
      const payment = `${attempts}`;
      const adas = by
        .apply({ kind: "topup", account: "ada", payment, amountMicro: 1, by: "test" })
        .then(() => {
          isAnswered = true;
        });
      for (let round = 0; round < 3; round += 1) await useOthers(by, 10 * attempts + round);
      const wereFirst = !isAnswered && (await isInside());
      await adas;
      assert.equal(await isInside(), false);
      return wereFirst;
    };
    while (!(await othersWereAnswered())) assert.ok(attempts < 5, "the others waited for the frozen node");
    child.thaw();
    assert.deepEqual(await child.ended, { code: 0, stderr: "" });
    assert.equal(child.acknowledged.length, 4 * rounds * 2);
    const [count] = await server.sql(
      "select count(*) as payments from journal where kind = 'payment'",
      database,
    );
    assert.equal(count?.payments, 4 * rounds + attempts);
  });

  after(async () => {
    assert.deepEqual(sessions, []);
  });
});
