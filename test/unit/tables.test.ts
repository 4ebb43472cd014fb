/** The description of the tables: it matches the schema, and both conversions keep every value. */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import type { AccountRow, ChargeRow } from "../../src/ledger/rows.ts";
import { emptyAccount } from "../../src/ledger/unit-of-work.ts";
import { accountRowIn } from "../../src/store/account-rows.ts";
import { readMigrations } from "../../src/store/migrations.ts";
import {
  accountTable,
  auditRecordTable,
  chargeTable,
  grantTable,
  holdKeyTable,
  holdTable,
  journalTable,
  keyStateTable,
  keyTable,
  laterGrantKeyTable,
  laterGrantTable,
  planFileTable,
  planVersionTable,
} from "../../src/store/tables.ts";
import { keyOf } from "../fixtures/ledger-rows.ts";

const receipt = {
  account: "ada",
  id: "request-1",
  seq: 2,
  atMs: 3,
  key: "key",
  planVersion: 1,
  model: "small",
  ending: "stopped",
  by: "an operator",
  estimated: true,
  note: "the server reported a total of 9 tokens, which its counts do not add up to",
  late: false,
  promptTokens: 4,
  cachedTokens: 5,
  completionTokens: 6,
  reasoningTokens: 7,
  pricePrompt: 8,
  priceCompletion: 9,
  priceCachedPrompt: 10,
  costMicro: 11,
  baseMicro: 12,
  overageMicro: 13,
  additionalMicro: 14,
  paid: [
    { grant: 2, bucket: "base", amountMicro: 12 },
    { grant: 16, bucket: "overage", amountMicro: 13 },
    { grant: 17, bucket: "additional", amountMicro: 14 },
  ],
  shortfallMicro: 15,
} as const satisfies ChargeRow;

/** The cell of a field of a receipt. */
const placeOf = (field: keyof ChargeRow) => chargeTable.columns.findIndex((column) => column.field === field);

test("has the columns of the schema", () => {
  const db = new DatabaseSync(":memory:");
  for (const { sql } of readMigrations("sqlite")) {
    db.exec(sql);
  }
  const inSchema = (table: string) =>
    db
      .prepare("select name from pragma_table_info(?)")
      .all(table)
      .map(({ name }) => String(name));
  for (const { name, columns } of [
    accountTable,
    holdTable,
    journalTable,
    grantTable,
    chargeTable,
    keyTable,
    laterGrantTable,
    planVersionTable,
    planFileTable,
  ]) {
    assert.deepEqual(columns.map((column) => column.name).sort(), inSchema(name).sort(), name);
  }
  const audit = auditRecordTable.columns.map((column) => column.name);
  assert.deepEqual(["id", ...audit].sort(), inSchema("audit_record").sort());
  for (const { name, columns } of [holdKeyTable, keyStateTable, laterGrantKeyTable]) {
    const known = new Set(inSchema(name));
    assert.deepEqual(
      columns.filter((column) => !known.has(column.name)),
      [],
      name,
    );
  }
  db.close();
});

test("reads back the values that it writes", () => {
  const cells = chargeTable.valuesOf(receipt);
  assert.equal(cells[placeOf("estimated")], 1);
  assert.deepEqual(chargeTable.rowOf(cells), receipt);
  const key = keyOf("key", "ada", { models: ["small", 'with "quotes"'], revokedMs: 5 });
  assert.deepEqual(keyTable.rowOf(keyTable.valuesOf(key)), key);
});

test("refuses to write a row without one of its nullable fields", () => {
  for (const field of ["name", "expiresMs"]) {
    const key = keyOf("key", "ada");
    Reflect.deleteProperty(key, field);
    assert.throws(() => keyTable.valuesOf(key), {
      message: `invariant broken: a row of api_key has no ${field}`,
    });
  }
});

test("reads the booleans and lists of a database that has these types", () => {
  const cells: unknown[] = chargeTable.valuesOf(receipt).with(placeOf("estimated"), 0);
  assert.deepEqual(chargeTable.rowOf(cells.with(placeOf("estimated"), false)), chargeTable.rowOf(cells));
  const key = keyOf("key", "ada", { models: ["small"] });
  const models = keyTable.columns.findIndex(({ field }) => field === "models");
  const keyCells: unknown[] = keyTable.valuesOf(key);
  assert.deepEqual(keyTable.rowOf(keyCells.with(models, ["small"])), key);
});

test("reads a row behind other cells", () => {
  const cells = chargeTable.valuesOf(receipt);
  assert.deepEqual(chargeTable.rowOf(["before", 1, ...cells, "after"], 2), receipt);
});

test("throws for a cell of another type, with the field and the table", () => {
  const cells: unknown[] = chargeTable.valuesOf(receipt);
  for (const [field, value] of [
    ["account", 1],
    ["account", null],
    ["seq", "2"],
    ["seq", 2n],
    ["ending", "eaten"],
    ["estimated", 2],
    ["shortfallMicro", undefined],
  ] as const) {
    assert.throws(() => chargeTable.rowOf(cells.with(placeOf(field), value)), {
      message: `the database holds ${value} where ${field} of charge should be`,
    });
  }
  const models = keyTable.columns.findIndex(({ field }) => field === "models");
  const keyCells: unknown[] = keyTable.valuesOf(keyOf("key", "ada"));
  assert.throws(() => keyTable.rowOf(keyCells.with(models, '["small",1]')), /models of api_key/);
  assert.throws(() => keyTable.rowOf(keyCells.with(models, ["small", null])), /models of api_key/);
});

const account: AccountRow = {
  ...emptyAccount,
  id: "ada",
  plan: "small",
  nextPlan: "big",
  seq: 9,
  createdMs: 1,
  endsMs: 2,
  holds: 1,
  base: {
    seq: 2,
    amountMicro: 10,
    spentMicro: 4,
    heldMicro: 5,
    fromMs: 6,
    untilMs: 7,
    anchorMs: 8,
    plan: "small",
    version: 1,
  },
  additional: [
    { seq: 5, amountMicro: 10, spentMicro: 1, heldMicro: 2, isPayment: false, untilMs: 11 },
    { seq: 4, amountMicro: 20, spentMicro: 3, heldMicro: 0, isPayment: true, untilMs: null },
  ],
  later: { count: 1, freeMicro: 12, heldMicro: 13, untilMs: 14 },
  requestsTatMs: 0.5,
  tokensTatMs: 1.25,
  tokensLimit: 100,
};

test("reads back an account with its grants", () => {
  const cells = accountTable.valuesOf(account);
  assert.deepEqual(accountTable.rowOf(cells), account);
  assert.deepEqual(accountRowIn(cells), { row: account, problem: null });
  const closed: AccountRow = { ...emptyAccount, state: "closed" };
  assert.deepEqual(accountTable.rowOf(accountTable.valuesOf(closed)), closed);
});

/** The cells of the account, with another one in this column. */
function damagedBy(column: string, value: unknown): unknown[] {
  const place = accountTable.columns.findIndex(({ name }) => name === column);
  assert.notEqual(place, -1, column);
  const cells: unknown[] = accountTable.valuesOf(account);
  return cells.with(place, value);
}

test("reads an account with an amount beyond 2^53 as an inexact number", () => {
  const cells = damagedBy("base_amount", 2n ** 60n);
  assert.throws(() => accountTable.rowOf(cells), /base of account/);
  assert.equal(accountRowIn(cells).row.base?.amountMicro, 2 ** 60);
});

test("an account that cannot be read has its id and a problem", () => {
  for (const [column, value] of [
    ["base_amount", "ten"],
    ["base_until_ms", null],
    ["state", "asleep"],
    ["later_free", null],
    ["additional", "[[5,10"],
    ["additional", "5"],
    ["additional", "[5]"],
    ["additional", "[[5,10,1,2,0]]"],
    ["additional", "[[5,10,1,2,0,null,1]]"],
    ["additional", "[[5,10,1,2,2,null]]"],
    ["additional", '[[5,"10",1,2,0,null]]'],
  ] as const) {
    const { row, problem } = accountRowIn(damagedBy(column, value));
    assert.equal(row.id, "ada");
    assert.ok(problem !== null, `${column} ${value}`);
  }
});

test("refuses takings that it does not know", () => {
  const cells: unknown[] = chargeTable.valuesOf(receipt);
  for (const paid of [
    "2",
    "[2]",
    '[[2,"gold",12]]',
    '[["2","base",12]]',
    '[[2,"base",12,1]]',
    '[[2,"base"]]',
  ]) {
    assert.throws(() => chargeTable.rowOf(cells.with(placeOf("paid"), paid)), /paid of charge/, paid);
  }
});
