/**
 * Single changes by hand in the database: the audit names each. Every cell of every row of a small
 * ledger is changed, and every row is deleted, one at a time, with the triggers dropped.
 */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { after, before, describe, test } from "node:test";
import type { Operation } from "../../src/ledger/operations.ts";
import { timesAt } from "../../src/ledger/snapshot.ts";
import type { Broken, FaultyRow } from "../../src/store/audit-report.ts";
import { readSeal, type Seal, sealText } from "../../src/store/seal.ts";
import { auditOf } from "../../src/store/sqlite/audit.ts";
import { SqliteCommits } from "../../src/store/sqlite/commit.ts";
import { openToWrite } from "../../src/store/sqlite/open-to-write.ts";
import { extend, hold, settle, tokens } from "../fixtures/ledger-operations.ts";
import { credits, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { day, hour, minute, start } from "../fixtures/times.ts";

/**
 * Columns that are neither facts nor follow from them: rates, times of the last use, when holds
 * began and expire, texts for people.
 */
const states: Readonly<Record<string, readonly string[]>> = {
  account: ["requests_tat_ms", "tokens_tat_ms", "tokens_limit"],
  hold: [
    ...["id", "model", "created_ms", "expires_ms", "extension", "extended", "metered_tokens"],
    ...["reasoning_tokens"],
  ],
  api_key: ["last_four", "last_used_ms", "requests_tat_ms", "tokens_tat_ms", "tokens_limit"],
};

/** Facts that nothing repeats: only a seal knows what they were. */
const sealed: Readonly<Record<string, readonly string[]>> = {
  journal: ["op", "by", "note", "at_ms", "kind", "amount", "grant_seq", "bucket"],
  credit_grant: ["until_ms", "payment", "request"],
  charge: ["id", "model", "ending", "by", "estimated", "reasoning_tokens", "late", "at_ms", "key"],
};

const tables = ["account", "later_grant", "hold", "api_key", "journal", "credit_grant", "charge"];

describe("a single change in the database", () => {
  const folder = mkdtempSync(join(tmpdir(), "inkwell-tampering-"));
  let db: DatabaseSync;
  let endMs = start;

  before(() => {
    const plans = plansOf(planOf("small", 100, 50), planOf("big", 1000, 50));
    db = openToWrite({ path: join(folder, "inkwell.db"), busyMs: 0 }, { nowMs: start, plans });
    endMs = fill(db);
    for (const { name } of db.prepare("select name from sqlite_master where type = 'trigger'").all())
      db.exec(`drop trigger ${name}`);
    db.exec("pragma foreign_keys = off; pragma ignore_check_constraints = on");
  });
  after(() => {
    db.close();
    rmSync(folder, { recursive: true });
  });

  const broken = () => auditOf(db, endMs).broken;

  /** Returns whether the audit notices the change, and takes it back. */
  const notices = (change: string): boolean => {
    db.exec("begin");
    try {
      db.exec(change);
      return broken().length > 0;
    } catch (error) {
      // A unique index refuses it.
      if (error instanceof Error && /constraint failed/.test(error.message)) return true;
      throw error;
    } finally {
      db.exec("rollback");
    }
  };

  test("the ledger is sound before", () => {
    assert.deepEqual(broken(), []);
  });

  for (const table of tables) {
    test(`of ${table}: the audit names each`, () => {
      const missed: string[] = [];
      let changes = 0;
      const names = db.prepare(`select name from pragma_table_info('${table}')`).all();
      assert.ok(rowsOf(db, table).length > 0, `${table} has rows`);
      for (const { name } of names) {
        const column = String(name);
        const skipped = [...(states[table] ?? []), ...(sealed[table] ?? [])];
        if (skipped.includes(column)) continue;
        for (const where of rowsOf(db, table).filter((row) => counts(db, { table, column, row }))) {
          const [{ cell } = { cell: null }] = db
            .prepare(`select "${column}" as cell from ${table} where ${where}`)
            .all();
          for (const value of others(cell)) {
            changes += 1;
            if (!notices(`update ${table} set "${column}" = ${value} where ${where}`))
              missed.push(`${column}: ${cell} to ${value} where ${where}`);
          }
        }
      }
      for (const where of rowsOf(db, table)) {
        changes += 1;
        if (!notices(`delete from ${table} where ${where}`)) missed.push(`delete where ${where}`);
      }
      assert.deepEqual(missed, [], `of ${changes} changes`);
    });
  }
});

describe("a seal", () => {
  const folder = mkdtempSync(join(tmpdir(), "inkwell-seal-"));
  let db: DatabaseSync;
  let endMs = start;
  let seal: Seal;

  before(() => {
    const plans = plansOf(planOf("small", 100, 50), planOf("big", 1000, 50));
    db = openToWrite({ path: join(folder, "inkwell.db"), busyMs: 0 }, { nowMs: start, plans });
    endMs = fill(db);
    const { broken, lists } = auditOf(db, endMs);
    assert.deepEqual(broken, []);
    seal = readSeal(sealText(endMs, lists), "seal");
    assert.equal(seal.lists.size, lists.length);
    for (const { name } of db.prepare("select name from sqlite_master where type = 'trigger'").all())
      db.exec(`drop trigger ${name}`);
    db.exec("pragma foreign_keys = off; pragma ignore_check_constraints = on");
  });
  after(() => {
    db.close();
    rmSync(folder, { recursive: true });
  });

  const changed = (...statements: string[]) => {
    db.exec("begin");
    try {
      for (const text of statements) db.exec(text);
      return namedBySeal(auditOf(db, endMs, seal).broken);
    } finally {
      db.exec("rollback");
    }
  };

  test("agrees with the ledger that it was made of, and with what came after", () => {
    assert.deepEqual(changed(), []);
    const commits = new SqliteCommits(db, () => timesAt(endMs + day));
    commits.commit([{ kind: "topup", account: "ada", payment: "later", amount: credits(1), by: "operator" }]);
    assert.deepEqual(changed(), []);
  });

  test("names an account that was erased with everything of it", () => {
    const tables = ["journal", "credit_grant", "charge", "hold", "api_key", "later_grant", "account_contact"];
    const erased = tables.map((table) => `delete from ${table} where account = 'bob'`);
    assert.deepEqual(changed(...erased, "delete from account where id = 'bob'"), [
      { list: "account bob", problem: "was sealed, and is gone" },
    ]);
  });

  test("names a payment that was forged in place of another, with row and fact alike", () => {
    assert.equal(
      changed(
        "update journal set op = 'payment:forged', note = 'forged' where op = 'payment:pi-bob-3'",
        "update credit_grant set payment = 'forged' where payment = 'pi-bob-3'",
      )[0]?.list,
      "account bob",
    );
  });

  for (const [table, columns] of Object.entries(sealed)) {
    test(`names a change of ${table} that the audit cannot know`, () => {
      const missed = columns.filter((column) => {
        const cellOf = (where: string) =>
          db.prepare(`select "${column}" as c from ${table} where ${where}`).get()?.c;
        const where = rowsOf(db, table).find((row) => (cellOf(row) ?? null) !== null);
        assert.ok(where !== undefined, `a row has ${column}`);
        const [value] = others(cellOf(where));
        return changed(`update ${table} set "${column}" = ${value} where ${where}`).length === 0;
      });
      assert.deepEqual(missed, []);
    });
  }

  test("names a plan version and a section that were changed", () => {
    assert.deepEqual(
      changed("update plan_version set concurrent = 77 where plan = 'big'").map(({ list }) => list),
      ["plan big"],
    );
    assert.deepEqual(
      changed("update plan_file set applied_ms = applied_ms - 1").map(({ list }) => list),
      ["sections"],
    );
  });

  test("that was changed or cut off is refused", () => {
    const text = sealText(start, [{ name: "account ada", last: 3, sha256: "0".repeat(64) }]);
    assert.throws(() => readSeal(text.replace("ada 3", "ada 4"), "f.seal"), /f\.seal is damaged/);
    assert.throws(() => readSeal(text.slice(0, 100), "f.seal"), /f\.seal is damaged/);
    assert.throws(() => readSeal("hello\n", "f.seal"), /f\.seal is no seal: its first line must be/);
  });
});

function namedBySeal(broken: readonly Broken[]): FaultyRow[] {
  const sealedRule = "everything that was sealed is still there, unchanged";
  return broken.flatMap(({ invariant, rows }) => (invariant === sealedRule ? rows : []));
}

/** The price of no token counts nothing, so only a seal knows what it was. */
function counts(
  db: DatabaseSync,
  { table, column, row }: { table: string; column: string; row: string },
): boolean {
  if (table !== "charge" || !(column.startsWith("price_") || column === "cached_tokens")) return true;
  const text = `select 1 from charge where ${row} and prompt_tokens > cached_tokens and cached_tokens > 0`;
  return db.prepare(text).get() !== undefined;
}

/** Conditions for each row. */
function rowsOf(db: DatabaseSync, table: string): string[] {
  const keys = db.prepare(`select name from pragma_table_info('${table}') where pk > 0 order by pk`).all();
  const names = keys.length === 0 ? ["rowid"] : keys.map(({ name }) => String(name));
  return db
    .prepare(`select ${names.join(", ")} from ${table}`)
    .all()
    .map((row) => names.map((name) => `${name} = ${textOf(row[name])}`).join(" and "));
}

function textOf(cell: unknown): string {
  return typeof cell === "number" ? String(cell) : `'${String(cell).replaceAll("'", "''")}'`;
}

/** Other values of a cell, as SQL. */
function others(cell: unknown): string[] {
  if (typeof cell === "number") return [String(cell + 1), ...(cell > 0 ? [String(cell - 1)] : [])];
  if (cell === null) return ["1"];
  const text = String(cell);
  if (text.startsWith("[")) return ["'[]'"];
  return [textOf(`x${text}`)];
}

/** Does everything once that writes a row. Returns the time of the end. */
function fill(db: DatabaseSync): number {
  let nowMs = start;
  const commits = new SqliteCommits(db, () => timesAt(nowMs));
  const by = "operator";
  const apply = (...operations: Operation[]) => {
    nowMs += minute;
    for (const operation of operations) {
      const [outcome] = commits.commit([operation]);
      const refused = ["refused", "no_account", "closed", "too_much", "unknown_request"];
      assert.ok(outcome !== undefined && !refused.includes(outcome.kind), JSON.stringify(outcome));
    }
  };
  const key = (account: string, id: string, budget: number | null): Operation => ({
    ...{ kind: "issue", account, key: id, keysMax: null, creator: null, by },
    row: {
      ...{ id, account, hash: Buffer.from(id).toString("hex").padEnd(64, "0"), lastFour: "abcd" },
      ...{ name: "k", models: ["*"], expiresMs: start + 900 * day, portal: "own" },
      ...{ requestsPerMinute: 1000, tokensPerMinute: 1_000_000_000, concurrent: 9 },
    },
    budget: budget === null ? null : { micro: credits(budget), rule: { every: "P1M", align: "calendar" } },
  });
  const brought = (payment: string | null) => ({
    base: { fromMs: start - hour, left: credits(60) },
    overage: { fromMs: start - 2 * hour, left: credits(50) },
    additional: { amount: credits(4), payment },
  });
  apply({ kind: "open", account: "eve", plan: "small", balances: brought("pi-eve"), by });
  apply({ kind: "open", account: "fay", plan: "small", balances: brought(null), by });
  for (const account of ["ada", "bob"]) {
    const own = `${account === "ada" ? "key" : "other"}`;
    apply(
      { kind: "open", account, plan: "small", by },
      key(account, own, null),
      key(account, `${own}-budget`, 500),
    );
    for (let n = 0; n < 20; n += 1) {
      apply({ kind: "topup", account, payment: `pi-${account}-${n}`, amount: credits(3), by });
    }
    const promotion = {
      kind: "promote",
      account,
      amount: credits(7),
      reason: "hello",
      request: null,
      by,
    } as const;
    apply({ ...promotion, op: `a-${account}`, untilMs: start + 300 * day });
    apply({ ...promotion, op: `b-${account}`, untilMs: null });
    apply({ ...promotion, op: `c-${account}`, untilMs: null });
    const of = { account, key: own, price: { prompt: 2, completion: 1, cachedPrompt: 1 } };
    apply(
      hold(`h1-${account}`, credits(120), of),
      settle(`h1-${account}`, 0, { account, used: tokens(9, credits(110), 4) }),
    );
    apply(hold(`h2-${account}`, credits(30), { account, key: `${own}-budget` }));
    apply(extend(`h2-${account}`, 1, credits(5), { account, used: tokens(3, credits(20)) }));
    apply(settle(`h2-${account}`, credits(33), { account }));
    apply({ ...promotion, kind: "promote", op: `m-${account}`, untilMs: null, request: `h2-${account}` });
    apply({
      kind: "adjust",
      account,
      op: `d-${account}`,
      amount: credits(2),
      grant: null,
      reason: "less",
      by,
    });
    const refund = {
      kind: "refund",
      account,
      refund: `r-${account}`,
      payment: `pi-${account}-19`,
      by,
    } as const;
    apply({ ...refund, amount: credits(1) });
    apply(hold(`late-${account}`, credits(4), { ...of, ttlMs: hour }));
    nowMs += 2 * hour;
    apply(hold(`stop-${account}`, 5, of));
    apply(settle(`stop-${account}`, 3, { account, ending: "stopped", by }));
    apply({ kind: "expire", account, hold: `late-${account}` });
    apply(settle(`late-${account}`, 7, { account }));
    apply({ kind: "plan", account, op: `p-${account}`, plan: "big", at: "now", by });
    const rotation = { hash: "f".repeat(64), lastFour: "wxyz", overlap: "P30D" };
    const set = { ...({ kind: "key", account, by } as const), key: own };
    if (account === "ada") apply({ ...set, op: "rotate", set: { rotation } });
    apply({ ...set, op: `set-${account}`, set: { name: "renamed", concurrent: 8 } });
    nowMs += day;
    apply({ kind: "plan", account, op: `q-${account}`, plan: "small", at: "refresh", by });
    apply(hold(`open-${account}`, credits(1200), { ...of, minMicro: 1, ttlMs: 90 * day }));
    apply(extend(`open-${account}`, 1, 5, { account, used: tokens(9, 11, 4), ttlMs: 90 * day }));
  }
  // The windows that came along have ended.
  apply({ kind: "topup", account: "eve", payment: "pi-eve-2", amount: credits(1), by });
  const end = { kind: "state", account: "ada", by } as const;
  apply({ ...end, op: "e", to: { kind: "end", endsMs: start + 500 * day } });
  apply({ ...end, op: "s", to: { kind: "suspend" } });
  apply({ kind: "revoke", account: "bob", key: "other-budget", by });
  return nowMs;
}
