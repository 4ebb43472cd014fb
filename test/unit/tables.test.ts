/** The description of the tables: it matches the schema, and both conversions keep every value. */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { accountOf } from "../../src/store/account-rows.ts";
import { readMigrations } from "../../src/store/migrations.ts";
import {
  accountTable,
  auditJobTable,
  chargeTable,
  grantTable,
  holdKeyTable,
  holdTable,
  journalTable,
  keyStateTable,
  keyTable,
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
  model: "small",
  ending: "stop",
  estimated: true,
  late: false,
  promptTokens: 4,
  cachedTokens: 5,
  completionTokens: 6,
  reasoningTokens: 7,
  pricePrompt: 8,
  priceCompletion: 9,
  priceCachedPrompt: 10,
  cost: 11,
  base: 12,
  overage: 13,
  additional: 14,
  shortfall: 15,
  baseGrant: 16,
  overageGrant: 17,
  basePast: 18,
  overagePast: 19,
} as const;

test("has the columns of the schema", () => {
  const db = new DatabaseSync(":memory:");
  for (const { sql } of readMigrations(new URL("../../src/store/migrations/sqlite/", import.meta.url))) {
    db.exec(sql);
  }
  const inSchema = (table: string) =>
    db
      .prepare("select name from pragma_table_info(?)")
      .all(table)
      .map(({ name }) => String(name));
  for (const { name, columns } of [
    ...[accountTable, holdTable, journalTable, grantTable, chargeTable, keyTable],
    ...[planVersionTable, planFileTable],
  ]) {
    assert.deepEqual(columns.map((column) => column.name).sort(), inSchema(name).sort(), name);
  }
  const job = auditJobTable.columns.map((column) => column.name);
  assert.deepEqual(["id", ...job].sort(), inSchema("audit_job").sort());
  for (const { name, columns } of [holdKeyTable, keyStateTable]) {
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
  const cells = chargeTable.valuesOf(receipt, JSON.stringify);
  assert.equal(cells[7], 1);
  assert.deepEqual(chargeTable.rowOf(cells), receipt);
  const key = keyOf("key", "ada", { models: ["small", 'with "quotes"'], revokedMs: 5 });
  assert.deepEqual(keyTable.rowOf(keyTable.valuesOf(key, JSON.stringify)), key);
});

test("refuses to write a row without one of its nullable fields", () => {
  for (const field of ["name", "expiresMs"]) {
    const key = keyOf("key", "ada");
    Reflect.deleteProperty(key, field);
    assert.throws(() => keyTable.valuesOf(key, JSON.stringify), {
      message: `invariant broken: a row of api_key has no ${field}`,
    });
  }
});

test("reads the booleans and lists of a database that has these types", () => {
  const cells: unknown[] = chargeTable.valuesOf(receipt, JSON.stringify).with(7, 0);
  assert.deepEqual(chargeTable.rowOf(cells.with(7, false)), chargeTable.rowOf(cells));
  const key = keyOf("key", "ada", { models: ["small"] });
  const models = keyTable.columns.findIndex(({ field }) => field === "models");
  const keyCells: unknown[] = keyTable.valuesOf(key, JSON.stringify);
  assert.deepEqual(keyTable.rowOf(keyCells.with(models, ["small"])), key);
});

test("reads a row behind other cells", () => {
  const cells = chargeTable.valuesOf(receipt, JSON.stringify);
  assert.deepEqual(chargeTable.rowOf(["before", 1, ...cells, "after"], 2), receipt);
});

test("throws for a cell of another type, with the field and the table", () => {
  const cells: unknown[] = chargeTable.valuesOf(receipt, JSON.stringify);
  for (const [cell, value, field] of [
    [0, 1, "account"],
    [0, null, "account"],
    [2, "2", "seq"],
    [2, 2n, "seq"],
    [6, "eaten", "ending"],
    [7, 2, "estimated"],
    [20, undefined, "shortfall"],
  ] as const) {
    assert.throws(() => chargeTable.rowOf(cells.with(cell, value)), {
      message: `the database holds ${value} where ${field} of charge should be`,
    });
  }
  const models = keyTable.columns.findIndex(({ field }) => field === "models");
  const keyCells: unknown[] = keyTable.valuesOf(keyOf("key", "ada"), JSON.stringify);
  assert.throws(() => keyTable.rowOf(keyCells.with(models, '["small",1]')), /models of api_key/);
  assert.throws(() => keyTable.rowOf(keyCells.with(models, ["small", null])), /models of api_key/);
});

test("reads an account with an amount beyond 2^53 as an inexact number", () => {
  const cells: unknown[] = accountTable.columns.map(({ type }) => {
    if (typeof type !== "string") return type[0];
    if (type === "windows") return null;
    return type.startsWith("text") ? "x" : 1;
  });
  const base = accountTable.columns.findIndex(({ field }) => field === "base");
  assert.throws(() => accountTable.rowOf(cells.with(base, 2n ** 60n)), /base of account/);
  assert.equal(accountOf(cells.with(base, 2n ** 60n)).row.base, 2 ** 60);
});
