/**
 * The audit: a sound ledger passes, and each broken invariant is reported with the rows at fault.
 */
import assert from "node:assert/strict";
import { closeSync, copyFileSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, before, describe, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import pg from "pg";
import { audit } from "../../src/app/database.ts";
import { loadConfig } from "../../src/config/load.ts";
import { OperatorError } from "../../src/errors.ts";
import { Ledger } from "../../src/ledger/batcher.ts";
import { type Broken, invariants } from "../../src/store/audit.ts";
import { auditDatabase } from "../../src/store/postgres/audit.ts";
import { openPostgresStore } from "../../src/store/postgres/store.ts";
import { auditFile } from "../../src/store/sqlite/audit.ts";
import { openSqliteStore } from "../../src/store/sqlite/store.ts";
import type { Store } from "../../src/store/store.ts";
import { extend, hold, settle } from "../fixtures/ledger-operations.ts";
import { addKey, credits, keyOf, planOf, plansOf } from "../fixtures/ledger-rows.ts";
import { MemoryStore } from "../fixtures/memory-store.ts";
import { noPostgres, postgres } from "../fixtures/postgres.ts";
import { day, minute } from "../fixtures/times.ts";
import { until } from "../fixtures/until.ts";

const monthly = {
  base: { credits: 300, every: "P1M", align: "opening" },
  overage: { credits: 20, every: "P7D", align: "opening" },
};
const plans = plansOf(planOf("starter", 100, 10), planOf("pro", 300, 20, monthly));
const folder = mkdtempSync(join(tmpdir(), "inkwell-audit-"));
after(() => rmSync(folder, { recursive: true }));
const sound = join(folder, "sound.db");

async function fill(store: Store): Promise<void> {
  await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
  await addKey(store, keyOf("key", "ada", { hash: "0".repeat(64) }));
  await store.commit([
    { kind: "topup", account: "ada", payment: "p1", amount: credits(5), by: "test" },
    hold("running", credits(1), { ttlMs: minute }),
    extend("running", 1, credits(2)),
    hold("done", credits(109)),
    settle("done", 100),
    hold("bought", credits(110)),
    extend("bought", 1, credits(1)),
    settle("bought", credits(111)),
  ]);
  await fillBob(store);
  while (await store.sumUsage());
  assert.deepEqual((await store.audit()).broken, []);
  await store.close();
}

/** Bob changes the plan twice, has a key with a budget, and settles a hold after its expiry. */
async function fillBob(store: Store): Promise<void> {
  const ofBob = { account: "bob", key: "team" } as const;
  await store.commit([{ kind: "open", account: "bob", plan: "starter", by: "test" }]);
  await addKey(store, keyOf("team", "bob", { hash: "1".repeat(64) }));
  const budget = { micro: credits(500), every: "P1M" };
  await store.commit([
    { kind: "key", op: "budget", ...ofBob, set: { budget } },
    { kind: "topup", account: "bob", payment: "p2", amount: credits(5), by: "test" },
    { kind: "refund", account: "bob", refund: "r1", payment: "p2", amount: credits(2), by: "test" },
    hold("late", credits(2), { ...ofBob, ttlMs: 0 }),
    { kind: "expire", account: "bob", hold: "late" },
    settle("late", 30, ofBob),
    hold("over", credits(10), ofBob),
    { kind: "plan", account: "bob", op: "up", plan: "pro", at: "now", by: "test" },
    extend("over", 1, credits(5), ofBob),
    settle("over", credits(12), ofBob),
    { kind: "plan", account: "bob", op: "down", plan: "starter", at: "now", by: "test" },
    hold("open", credits(4), ofBob),
    { kind: "plan", account: "bob", op: "later", plan: "pro", at: "refresh", by: "test" },
  ]);
}

before(async () => fill(await openSqliteStore({ path: sound, plans })));

/** Writes to the database without its checks, triggers and unique indexes. */
function corrupt(...statements: string[]): string {
  const path = join(folder, `${Math.random()}.db`);
  copyFileSync(sound, path);
  const db = new DatabaseSync(path);
  try {
    db.exec("pragma foreign_keys = off; pragma ignore_check_constraints = on");
    for (const { name } of db.prepare("select name from sqlite_schema where type = 'trigger'").all()) {
      db.exec(`drop trigger ${String(name)}`);
    }
    for (const statement of statements) db.exec(statement);
  } finally {
    db.close();
  }
  return path;
}

function brokenIn(path: string): Broken[] {
  return auditFile({ file: { path, busyMs: 5000 }, nowMs: Date.now() }).broken;
}

/** Works on a copy of the sound database, without its foreign keys, checks and triggers. */
const withoutRules = `do $$ declare rule record; begin
  for rule in select conrelid::regclass as of, conname from pg_constraint
    where connamespace = 'inkwell'::regnamespace and contype in ('f', 'c')
  loop execute format('alter table %s drop constraint %I', rule.of, rule.conname); end loop;
  for rule in select tgrelid::regclass as of, tgname from pg_trigger where not tgisinternal
  loop execute format('drop trigger %I on %s', rule.tgname, rule.of); end loop;
end $$`;

let soundDatabase: Promise<string> | null = null;

async function brokenOnPostgres(...statements: string[]): Promise<Broken[]> {
  const server = await postgres();
  soundDatabase ??= (async () => {
    const name = await server.create();
    await fill(await openPostgresStore({ url: server.url(name), plans }));
    await server.sql(withoutRules, name);
    return name;
  })();
  const name = `${await soundDatabase}_broken`;
  await server.sql(`create database ${name} template ${await soundDatabase} strategy file_copy`);
  try {
    for (const statement of statements) await server.sql(statement, name);
    return (await auditDatabase(server.url(name), null, new AbortController().signal)).broken;
  } finally {
    await server.drop(name);
  }
}

const onStores: readonly {
  name: string;
  skip?: string;
  broken(...statements: string[]): Promise<Broken[]>;
}[] = [
  { name: "SQLite", broken: async (...statements) => brokenIn(corrupt(...statements)) },
  {
    name: "PostgreSQL",
    broken: brokenOnPostgres,
    ...(noPostgres === null ? {} : { skip: noPostgres }),
  },
];

/** A table without its unique indexes, as after a disk failure. */
function withoutIndexes(table: string): string {
  return `create table copy as select * from ${table}; drop table ${table}; alter table copy rename to ${table}`;
}

type Corruption = readonly [row: object, ...statements: string[]];

/** For each invariant: cells of the row at fault, and the statements that break the invariant. */
const corruptions: Record<string, readonly Corruption[]> = {
  "the journal is the balance": [
    [
      { account: "ada", additional: 999_901, journal_additional: 999_900 },
      "update account set additional = additional + 1",
    ],
  ],
  "the journal is numbered without gaps": [
    [
      { account: "ada", last: 10, entries: 9 },
      "update journal set seq = 10 where seq = 9 and account = 'ada'",
    ],
  ],
  "each journal entry follows from the one before": [
    [
      { account: "ada", op: "payment:p1", additional_after: 7 },
      "update journal set additional_after = 7 where kind = 'topup'",
    ],
  ],
  "each kind of journal entry moves only what it may": [
    [{ kind: "topup", base_delta: 1 }, "update journal set base_delta = 1 where kind = 'topup'"],
    [{ kind: "refund" }, "update journal set additional_delta = 1 where kind = 'refund'"],
    [{ kind: "plan" }, "update journal set additional_delta = 1 where kind = 'plan'"],
    [{ kind: "close" }, "update journal set kind = 'close', base_delta = 1 where op = 'plan:up'"],
    [{ kind: "suspend" }, "update journal set kind = 'suspend', base_delta = 1 where op = 'plan:later'"],
    [{ kind: "void" }, "update journal set kind = 'void', base_delta = -1 where op = 'done/end'"],
  ],
  "every operation stands once": [
    [
      { account: "ada", op: "open", times: 2 },
      withoutIndexes("journal"),
      "update journal set op = 'open' where kind = 'topup'",
    ],
  ],
  "every hold is open or has ended, and not both": [
    [{ hold: "running", open: null, ended: null }, "delete from hold"],
    [
      { hold: "running", open: "running", ended: "running" },
      "update charge set id = 'running' where id = 'done'",
    ],
  ],
  "every open hold was taken as a hold": [
    [{ account: "ada", hold: "running" }, "update journal set kind = 'extend' where op = 'running'"],
  ],
  "every charge is what its journal entries took": [
    [
      { hold: "done", base: 99, base_taken: credits(97), base_back: credits(97) - 100, overage: 1 },
      "update charge set base = base - 1, overage = overage + 1 where id = 'done'",
    ],
    [{ hold: "done", journal_seq: null }, "update journal set op = 'x' where op = 'done/end'"],
    [{ hold: "done", taken_kind: null }, "update journal set op = 'x' where op = 'done'"],
    [{ hold: "done", kind: "expire" }, "update journal set kind = 'expire' where op = 'done/end'"],
    [{ hold: "done", at_ms: 7 }, "update charge set at_ms = 7 where id = 'done'"],
    [{ hold: "done", seq: 4 }, "update charge set seq = 4 where id = 'done'"],
    [{ hold: "done", base_past: 1 }, "update charge set base_past = 1 where id = 'done'"],
    // The window counts everything from journal number 7, so it did not pay what was taken before.
    [
      { hold: "over", base_lapsed: credits(10) },
      "update credit_grant set since = seq where cause = 'plan' and bucket = 'base'",
    ],
  ],
  "every late charge is what its journal entry took": [
    [{ hold: "late", base: 31, base_delta: -30 }, "update charge set base = base + 1 where late"],
    [{ hold: "late", at_ms: 7 }, "update charge set at_ms = 7 where late"],
  ],
  "a late charge follows one expired charge, and both add up to a usage": [
    [{ hold: "late", first_ending: "stop" }, "update charge set ending = 'stop' where not late"],
    [{ hold: "late", first_ending: null }, "delete from charge where id = 'late' and not late"],
    [{ hold: "late" }, "update charge set price_prompt = 2 where late"],
    [{ hold: "late", prompt_tokens: -1 }, "update charge set prompt_tokens = -1 where late"],
  ],
  "no request has two charges of one kind": [
    [
      { hold: "done", times: 2 },
      withoutIndexes("charge"),
      "insert into charge select * from charge where id = 'done'",
    ],
  ],
  "every cost is tokens times prices, and is paid or recorded as shortfall": [
    [{ hold: "done", shortfall: 1 }, "update charge set shortfall = 1 where id = 'done'"],
    [{ hold: "late", cost: 31 }, "update charge set cost = 31, shortfall = 1 where late"],
  ],
  "every open hold holds what its journal entries took": [
    [
      { hold: "running", base: credits(3) + 1, base_taken: credits(3) },
      "update hold set base = base + 1",
      "update account set base_held = base_held + 1",
    ],
    [
      { hold: "running", seq: 4, base: credits(2), base_taken: null },
      `update hold set base = 2000000, earlier = '[{"seq":3,"base":1000000,"overage":0}]', taken_seq = 4 where id = 'running'`,
      "update journal set op = 'running/x', note = 'x' where op = 'running/1'",
    ],
  ],
  "what accounts hold is what their open holds hold": [
    [{ account: "ada", base_held: credits(3), base: credits(3) + 1 }, "update hold set base = base + 1"],
    // Takings from before the window do not count.
    [{ account: "ada", base_held: credits(3), base: 0 }, "update hold set taken_seq = 0"],
    [{ account: "ada", used: 5, used_by_holds: 0 }, "update account set used = 5"],
  ],
  "what keys hold is what their open holds hold": [
    [{ key: "key", holds: 0, open: 1 }, "update api_key set holds = 0"],
    [{ key: "key", held: 0, amount: credits(3) }, "update api_key set held = 0"],
    [{ key: "key", used: 5, used_by_holds: 0 }, "update api_key set used = 5"],
  ],
  "what was bought is left, spent or held": [
    [
      { account: "ada", bought: credits(6), remaining: 999_900, spent: 4_000_100 },
      "update journal set additional_delta = 6000000 where kind = 'topup'",
    ],
  ],
  "no bucket is above its cap, and additional is not below zero": [
    [{ account: "ada", overage: credits(10) + 1 }, "update account set overage = overage_cap + 1"],
    [{ account: "ada", additional: -1 }, "update account set additional = -1"],
  ],
  "everything belongs to an account that exists": [
    [
      { what: "hold", account: "nobody", id: "running" },
      "update hold set account = 'nobody' where id = 'running'",
    ],
    [{ what: "journal", account: "ada" }, "delete from account where id = 'ada'"],
  ],
  "every change of a window and every purchase has its grant": [
    [
      { account: "ada", kind: "open", base: null, by: "test" },
      "delete from credit_grant where bucket = 'base'",
    ],
    [{ account: "ada", op: "payment:p1" }, "delete from credit_grant where bucket = 'additional'"],
  ],
  "every grant has the journal entry that made it, and its credits": [
    [{ account: "ada", ref: "p3" }, "update credit_grant set ref = 'p3' where ref = 'p1'"],
    [{ account: "ada", amount: 1 }, "update credit_grant set amount = 1 where ref = 'p1'"],
    [{ ref: "r1" }, "update credit_grant set payment = 'p1' where ref = 'r1'"],
    [{ account: "ada", cause: "open", spent: 1 }, "update credit_grant set spent = 1 where cause = 'open'"],
    [{ cause: "window" }, "update credit_grant set cause = 'window' where cause = 'open'"],
    [{ at_ms: 7 }, "update credit_grant set at_ms = 7 where cause = 'open'"],
    [{ seq: 99 }, "update credit_grant set seq = 99 where ref = 'p1'"],
  ],
  "every grant gives the credits of its plan version": [
    [
      { account: "ada", bucket: "base", amount: credits(101), credits: 100 },
      "update credit_grant set amount = 101000000 where cause = 'open' and bucket = 'base'",
    ],
    [{ cause: "plan", version: 9 }, "update credit_grant set version = 9 where cause = 'plan'"],
    [{ cause: "close" }, "update credit_grant set cause = 'close' where cause = 'plan'"],
  ],
  "windows do not overlap, and only whole windows are missing between them": [
    [
      { account: "bob", cause: "window" },
      "update credit_grant set cause = 'window' where cause = 'plan'",
      "update journal set kind = 'refresh' where kind = 'plan'",
    ],
    [{ account: "ada", cause: "window" }, "update credit_grant set cause = 'window' where cause = 'open'"],
    [{ account: "bob", cause: "open" }, "update credit_grant set cause = 'open' where cause = 'plan'"],
    [
      { account: "bob", cause_before: "close" },
      "update credit_grant set cause = 'close' where cause = 'open'",
    ],
    // Half a day after the start of a window of a day.
    [
      { account: "ada", bucket: "base" },
      "update credit_grant set cause = 'window', starts_ms = starts_ms + 43200000, ends_ms = ends_ms + 43200000",
    ],
    [{ account: "ada" }, "update credit_grant set ends_ms = starts_ms"],
    [{ account: "ada" }, "update credit_grant set at_ms = ends_ms where cause = 'open'"],
    // A plan change cannot resume a window that there never was.
    [
      { account: "bob", cause: "plan" },
      "update credit_grant set starts_ms = starts_ms - 86400000, anchor_ms = anchor_ms - 172800000 where cause = 'plan'",
    ],
    [{ account: "bob", plan: "other" }, "update credit_grant set plan = 'other' where cause = 'plan'"],
  ],
  "a new window starts with nothing spent or held": [
    [{ account: "ada", spent: 1 }, "update credit_grant set spent = 1 where cause = 'open'"],
    [{ account: "bob", since: 99 }, "update credit_grant set since = 99 where cause = 'plan'"],
    [{ account: "bob" }, "update credit_grant set since = seq where cause = 'plan'"],
  ],
  "the next grant of a window carries what was spent and held": [
    [
      { account: "bob", bucket: "base", spent: 31, spent_since: 30, used: credits(10) + 30 },
      "update credit_grant set spent = spent + 1, held = held - 1 where seq = 9 and bucket = 'base'",
    ],
    [
      { account: "bob", bucket: "base", used: credits(10) + 29, used_before: credits(10) + 30 },
      "update credit_grant set held = held - 1 where seq = 9 and bucket = 'base'",
    ],
    [
      { account: "bob", bucket: "overage", spent: 1, spent_since: 0 },
      "update credit_grant set spent = spent + 1 where seq = 9 and bucket = 'overage'",
    ],
    [
      { account: "bob", bucket: "base", spent_since: 29 },
      "update charge set base_past = base_past + 1 where late",
    ],
  ],
  "windows that resume or can resume have counted what was spent and held": [
    // The kept window of the plan pro counts further.
    [
      {
        account: "bob",
        bucket: "base",
        seq: null,
        spent: 7,
        spent_since: credits(12) + 30,
        held: credits(4),
      },
      `update account set kept = '[{"bucket":"base","since":1,"spent":7,"held":4000000}]' where id = 'bob'`,
    ],
    [
      { account: "bob", bucket: "overage", seq: null, held: 7, held_since: 0 },
      `update account set kept = '[{"bucket":"overage","since":1,"spent":0,"held":7}]' where id = 'bob'`,
    ],
    [
      { account: "bob", seq: null, since: 2, began_with: "key" },
      `update account set kept = '[{"bucket":"base","since":2,"spent":0,"held":0}]' where id = 'bob'`,
    ],
    // As if the grant before had begun a window of its own.
    [
      { account: "bob", bucket: "base", since: 1, spent: credits(12) + 31, spent_since: credits(12) + 30 },
      "update credit_grant set since = 9 where seq = 9",
      "update credit_grant set spent = spent + 1 where seq > 9 and bucket = 'base'",
    ],
  ],
  "every charge names the grants that were current": [
    [{ hold: "over", base_grant: 1 }, "update charge set base_grant = 1"],
    [{ hold: "done", overage_grant: 0 }, "update charge set overage_grant = 0"],
  ],
  "what is spent in a window is what it carried and its charges": [
    [
      { account: "ada", base: credits(97) + 1, base_charged: credits(97) },
      "update account set base = base - 1",
    ],
    [
      { account: "bob", overage_carried: 1 },
      "update credit_grant set spent = spent + 1 where cause = 'plan' and bucket = 'overage'",
    ],
    [{ account: "ada", base_charged: credits(97) - 1 }, "update charge set base_past = 1 where id = 'done'"],
  ],
  "every account is what its newest grants say": [
    [{ account: "ada", ends_ms: 7 }, "update account set base_ends_ms = 7"],
    [{ account: "ada", cap: 7 }, "update account set overage_cap = 7"],
    [{ account: "bob", seq: 1, bucket: "base" }, "update account set base_grant = 1"],
    [{ account: "ada", plan: "pro" }, "update account set plan = 'pro'"],
    [{ account: "ada", window_plan: "pro" }, "update account set base_plan = 'pro'"],
    [{ account: "ada", every: "P2D" }, "update account set base_every = 'P2D'"],
    [{ account: "ada", window_version: 7 }, "update account set base_version = 7"],
    [{ account: "bob", since: 2 }, "update account set base_since = 2"],
    [{ account: "ada", grant_seq: null }, "delete from credit_grant where account = 'ada'"],
  ],
  "the state of every account is what its journal says": [
    [{ account: "ada", state: "suspended" }, "update account set state = 'suspended'"],
    [{ account: "ada", next_plan: "pro" }, "update account set next_plan = 'pro'"],
    [{ account: "bob", next_plan: null }, "update account set next_plan = null"],
    [{ account: "ada", ends_ms: 7 }, "update account set ends_ms = 7"],
    [
      { account: "bob", state_entry: "suspend" },
      "update journal set kind = 'suspend' where op = 'plan:later'",
    ],
  ],
  "closed accounts have no credits in windows": [
    [{ account: "ada", base_cap: credits(100) }, "update account set state = 'closed'"],
    [
      { account: "bob", next_plan: "pro" },
      "update account set state = 'closed', base_cap = 0, overage_cap = 0, kept = null",
    ],
  ],
  "every payment, refund and adjustment counts once": [
    [
      { cause: "payment", ref: "p1", times: 2 },
      "drop index grant_by_ref",
      "update credit_grant set ref = 'p1' where ref = 'p2'",
    ],
    [
      { cause: "adjustment", ref: "a1", times: 2 },
      "drop index grant_by_ref",
      "update credit_grant set cause = 'adjustment', ref = 'a1' where ref in ('p2', 'r1')",
    ],
  ],
  "refunds do not exceed their payment": [
    [
      { payment: "p2", refunded: credits(6), amount: credits(5) },
      "update credit_grant set amount = -6000000 where ref = 'r1'",
    ],
    [
      { payment: "p1", account: "bob", paid_by: "ada" },
      "update credit_grant set payment = 'p1' where ref = 'r1'",
    ],
    [{ payment: "p9", paid_by: null }, "update credit_grant set payment = 'p9' where ref = 'r1'"],
  ],
  "key budgets equal their charges": [
    [
      { key: "team", budget_spent: credits(12) + 31, charged: credits(12) + 30 },
      "update api_key set budget_spent = budget_spent + 1 where budget is not null",
    ],
    [
      { key: "team", budget_spent: 0 },
      "update api_key set budget_spent = 0, budget_starts_ms = 7 where budget is not null",
    ],
  ],
  "plan versions are numbered without gaps and ordered in time": [
    [{ plan: "pro", version: 3 }, "update plan_version set version = 3 where plan = 'pro'"],
  ],
  "every window that can resume is complete": [
    [{ account: "bob", n: 0 }, "update account set kept = '[{}]' where id = 'bob'"],
  ],
  "the periods of plan versions can be read": [
    [
      { plan: "pro", bucket: "base", every: "sometimes" },
      "update plan_version set base_every = 'sometimes' where plan = 'pro'",
    ],
    [
      { plan: "pro", bucket: "overage", every: "" },
      "update plan_version set overage_every = '' where plan = 'pro'",
    ],
    [
      { plan: "pro", bucket: "base", every: "PT" },
      "update plan_version set base_every = 'PT' where plan = 'pro'",
    ],
    [
      { plan: "pro", bucket: "base", every: "PDM" },
      "update plan_version set base_every = 'PDM' where plan = 'pro'",
    ],
  ],
  "applied plans sections are numbered without gaps": [[{ epoch: 3 }, "update plan_file set epoch = 3"]],
  "final days are what their charges add up to": [
    [
      { account: "ada", key: "key", cost_too_many: 1, base_too_many: 1 },
      "update usage_day set cost = cost + 1, base = base + 1 where account = 'ada'",
    ],
    [
      { account: "bob", requests_too_many: -2, late_too_many: -1 },
      "delete from usage_day where account = 'bob'",
    ],
    [{ account: "bob", requests_too_many: 2, late_too_many: 1 }, "update usage_summed set through = 0"],
  ],
  "hours are what their charges add up to": [
    [
      { account: "ada", key: "key", cost_too_many: 1 },
      "update usage_hour set cost = cost + 1 where account = 'ada' and key = 'key'",
    ],
    [
      { account: "bob", key: "", requests_too_many: -2, late_too_many: -1 },
      "delete from usage_hour where account = 'bob' and key = ''",
    ],
    [
      { account: "", key: "", prompt_tokens_too_many: 7 },
      "update usage_hour set prompt_tokens = prompt_tokens + 7 where account = ''",
    ],
    [
      { account: "bob", key: "", requests_too_many: 2, late_too_many: 1 },
      "update usage_summed set through = 0",
    ],
  ],
  "receipts are in the spans of their days": [
    [{ account: "ada", key: "key" }, "delete from receipt_span where account = 'ada'"],
    [{ account: "bob" }, "update receipt_span set first_seq = last_seq where account = 'bob'"],
  ],
  "every plan of an account has a version": [
    [{ account: "ada", plan: "gone" }, "update account set plan = 'gone'"],
    [{ account: "bob", next_plan: "gone" }, "update account set next_plan = 'gone' where id = 'bob'"],
  ],
};

for (const { name, skip = false, broken: brokenAfter } of onStores) {
  describe(`the audit on ${name} finds violations:`, { skip }, () => {
    for (const invariant of Object.keys(invariants)) {
      test(invariant, async () => {
        const cases = corruptions[invariant] ?? [];
        assert.ok(cases.length > 0, "a corruption breaks the invariant");
        for (const [row, ...statements] of cases) {
          const broken = (await brokenAfter(...statements)).find((each) => each.invariant === invariant);
          assert.ok(broken !== undefined, `the invariant is found broken after ${statements.join("; ")}`);
          const isShown = broken.rows.some((each) => isDeepStrictEqual({ ...each, ...row }, { ...each }));
          assert.ok(isShown, `the row at fault is shown: ${JSON.stringify(broken.rows)}`);
        }
      });
    }

    test("sums beyond 63 bits and amounts beyond 2^53", async () => {
      const broken = await brokenAfter(
        "update journal set base_delta = 9223372036854775807 where kind in ('open', 'topup')",
      );
      const named = broken.map((each) => each.invariant);
      assert.ok(named.includes("the journal is the balance"));
      const moved = broken.find(
        (each) => each.invariant === "each kind of journal entry moves only what it may",
      );
      assert.equal(moved?.rows[0]?.base_delta, "9223372036854775807");
    });
  });
}

describe("the audit finds", () => {
  test("a file whose indexes and tables differ", async () => {
    const path = corrupt();
    const db = new DatabaseSync(path, { readOnly: true });
    const page = db
      .prepare("select rootpage from sqlite_schema where name = 'hold_by_expiry'")
      .get()?.rootpage;
    const size = db.prepare("pragma page_size").get()?.page_size;
    db.close();
    // The last byte of the only index entry, which is in the id of the hold.
    const file = openSync(path, "r+");
    writeSync(file, "?", Number(page) * Number(size) - 1);
    closeSync(file);
    const named = brokenIn(path).map(({ invariant, rows }) => `${invariant}: ${JSON.stringify(rows)}`);
    assert.match(named.join(), /the file is whole.*missing from index hold_by_expiry/);
  });
});

test("finds overspent accounts among sound ones and shows at most twenty rows", async () => {
  const store = new MemoryStore(plans, () => 0);
  for (let n = 0; n < 30; n += 1) {
    await store.commit([{ kind: "open", account: `account-${n}`, plan: "starter", by: "test" }]);
  }
  assert.deepEqual((await store.audit()).broken, []);
  for (let n = 0; n < 25; n += 1) store.damage(`account-${n}`, { base: 0 - n - 1 });
  const { broken } = await store.audit();
  assert.deepEqual(
    broken.map(({ invariant, rows }) => [invariant, rows.length]),
    [
      ["the journal is the balance", 20],
      ["what is spent in a window is what it carried and its charges", 20],
    ],
  );
});

test("accepts credits that ended with their window, and late settlements", async () => {
  let nowMs = Date.UTC(2026, 0, 15);
  const store = new MemoryStore(plans, () => nowMs);
  await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
  await addKey(store, keyOf("key", "ada"));
  await store.commit([hold("over", credits(105), { ttlMs: 3 * day }), hold("late", credits(2))]);
  nowMs += 2 * day;
  await store.commit([
    extend("over", 1, credits(1)),
    { kind: "expire", account: "ada", hold: "late" },
    settle("late", 10),
    settle("over", 100),
  ]);
  const rows = await store.usage({ limit: 10 });
  assert.deepEqual(rows.map(({ id, cost }) => [id, cost]).sort(), [
    ["late", 0],
    ["late", 10],
    ["over", 100],
  ]);
  assert.deepEqual((await store.audit()).broken, []);
});

test("accepts windows that were carried, resumed and missed, and holds that they outlive", async () => {
  let nowMs = Date.UTC(2026, 0, 31, 12);
  const store = new MemoryStore(plans, () => nowMs);
  await store.commit([{ kind: "open", account: "ada", plan: "starter", by: "test" }]);
  await addKey(store, keyOf("key", "ada"));
  let n = 0;
  const change = (plan: string, at: "now" | "refresh") =>
    ({ kind: "plan", account: "ada", op: `change-${n++}`, plan, at, by: "test" }) as const;
  const long = { ttlMs: 90 * day };
  const steps = [
    {
      waitMs: 0,
      operations: [hold("a", credits(60), long), hold("b", credits(30), long), change("pro", "now")],
    },
    {
      waitMs: minute,
      operations: [extend("a", 1, credits(20), long), change("starter", "now"), settle("b", 9)],
    },
    {
      waitMs: day,
      operations: [hold("c", credits(5), long), change("pro", "now"), settle("a", credits(75))],
    },
    { waitMs: 3 * day, operations: [change("starter", "refresh"), hold("d", credits(8), long)] },
    {
      waitMs: 40 * day,
      operations: [extend("d", 1, credits(8), long), change("pro", "now"), settle("c", 7)],
    },
    // A clock that was set back dates the change in the window that it ends.
    {
      waitMs: -2000,
      operations: [change("starter", "now"), settle("d", credits(20)), change("pro", "refresh")],
    },
    { waitMs: 70 * day, operations: [hold("e", credits(1)), change("starter", "now")] },
    {
      waitMs: day,
      operations: [{ kind: "state", account: "ada", op: "close", to: { kind: "close" }, by: "test" }],
    },
  ] as const;
  for (const { waitMs, operations } of steps) {
    nowMs += waitMs;
    for (const operation of operations) {
      await store.commit([operation]);
      assert.deepEqual((await store.audit()).broken, [], JSON.stringify(operation));
    }
  }
  const causes = new Set(store.grants("ada").map(({ cause }) => cause));
  assert.deepEqual([...causes].sort(), ["close", "open", "plan", "window"]);
});

for (const [name, openBusy, skip] of [
  ["SQLite", () => openSqliteStore({ path: join(folder, "busy.db"), plans }), false],
  [
    "PostgreSQL",
    async () => {
      const server = await postgres();
      return await openPostgresStore({ url: server.url(await server.create()), plans });
    },
    noPostgres ?? false,
  ],
] as const) {
  test(`commits continue while the audit runs on ${name}, and the audit finds no fault in them`, {
    skip,
  }, async () => {
    const store = await openBusy();
    const ledger = new Ledger(store);
    await ledger.apply({ kind: "open", account: "ada", plan: "starter", by: "test" });
    await addKey(store, keyOf("key", "ada", { hash: "0".repeat(64) }));
    let auditing = true;
    let during = 0;
    const busy = (async () => {
      for (let n = 0; auditing; n += 1) {
        await ledger.apply({ kind: "topup", account: "ada", payment: `p${n}`, amount: 1, by: "test" });
        during += 1;
      }
    })();
    // An audit may be short. Commits that waited for it would all end before or after it.
    let most = 0;
    for (let audits = 0; audits < 3 || (most < 5 && audits < 200); audits += 1) {
      const before = during;
      assert.deepEqual((await store.audit()).broken, []);
      most = Math.max(most, during - before);
    }
    auditing = false;
    await busy;
    assert.ok(most >= 5, `${most} commits went through during an audit`);
    assert.equal((await store.audit()).journalRows, during + 1);
    const cut = store.audit();
    await Promise.all([assert.rejects(cut, /ended before it was through/), store.close()]);
  });
}

// While a snapshot exists, PostgreSQL keeps all old versions of every row that is written.
test("each invariant is checked in its own snapshot on PostgreSQL, with all rows committed before", {
  skip: noPostgres ?? false,
}, async () => {
  const server = await postgres();
  const name = await server.create();
  const url = server.url(name);
  await fill(await openPostgresStore({ url, plans }));
  const other = new pg.Client({ connectionString: url });
  await other.connect();
  await other.query("begin; lock table inkwell.hold in access exclusive mode");
  const audit = auditDatabase(url, null, new AbortController().signal);
  const waiting = `select from pg_stat_activity where datname = '${name}' and wait_event_type = 'Lock'`;
  await until("the audit waits", async () => (await server.sql(waiting, name)).length > 0);
  // No invariant of the keys has been checked yet.
  await server.sql("update api_key set holds = 7", name);
  await other.query("rollback");
  await other.end();
  const { broken } = await audit;
  assert.deepEqual(
    broken.map(({ invariant }) => invariant),
    ["what keys hold is what their open holds hold"],
  );
});

test("the check of a PostgreSQL database without a ledger, or of another version, changes nothing", {
  skip: noPostgres ?? false,
}, async () => {
  const server = await postgres();
  const name = await server.create();
  const config = loadConfig({ cwd: folder, env: { INKWELL_DATABASE: server.url(name) } });
  await assert.rejects(audit(config), (error) => {
    assert.ok(error instanceof OperatorError);
    assert.match(error.message, /^There is no ledger of Inkwell in the database .* Nothing was changed/);
    return true;
  });
  const schemas = "select 1 from pg_namespace where nspname = 'inkwell'";
  assert.deepEqual(await server.sql(schemas, name), []);
  await fill(await openPostgresStore({ url: server.url(name), plans }));
  assert.deepEqual((await audit(config)).broken, []);
  await server.sql("drop table receipt_span", name);
  await assert.rejects(audit(config), (error) => {
    assert.ok(error instanceof OperatorError);
    assert.match(
      error.message,
      /cannot be checked, .*receipt_span" does not exist\)\. Nothing was changed\./,
    );
    return true;
  });
  await server.sql("delete from migration", name);
  await assert.rejects(audit(config), /was made by an older version of Inkwell. Nothing was changed/);
  assert.deepEqual(await server.sql("select 1 from migration", name), []);
});

test("closing a store ends its audits", async () => {
  const store = await openSqliteStore({ path: sound, plans });
  const audit = store.audit();
  await Promise.all([assert.rejects(audit, /ended before it was through/), store.close()]);
  await assert.rejects(store.audit(), /closed/);
});
