import assert from "node:assert/strict";
import { test } from "node:test";
import { sqlFor } from "../../src/store/migrations.ts";

test("writes the words of each database", () => {
  const text = "create table t (id {text} primary key, n {int}) {table};";
  assert.equal(
    sqlFor("sqlite", text),
    "create table t (id text primary key, n integer) strict, without rowid;",
  );
  assert.equal(sqlFor("postgres", text), 'create table t (id text collate "C" primary key, n bigint) ;');
});

test("leaves out what only the other database has", () => {
  const text = "a{sqlite} b {int}{end}\n{postgres}\nc {int}\n{end}d";
  assert.equal(sqlFor("sqlite", text), "a b integer\nd");
  assert.equal(sqlFor("postgres", text), "a\n\nc bigint\nd");
});

test("rows of an append-only table are never changed, deleted or emptied", () => {
  const eventsOf = (sql: string) =>
    [...sql.matchAll(/before (\w+) on t .*'rows are (.*)'/g)].map(([, ...of]) => of);
  const both = [
    ["update", "never changed"],
    ["delete", "never deleted"],
  ];
  assert.deepEqual(eventsOf(sqlFor("sqlite", "{append only t, rows}")), both);
  assert.deepEqual(eventsOf(sqlFor("postgres", "{append only t, rows}")), [
    ...both,
    ["truncate", "never deleted"],
  ]);
});

test("refuses braces that it does not know", () => {
  for (const text of ["{integer}", "{}", "{int", "{end}", "{append only t}", "{sqlite}a", "{mysql}a{end}"]) {
    for (const database of ["sqlite", "postgres"] as const)
      assert.throws(() => sqlFor(database, `a ${text}`), /is no word of migrations/, text);
  }
});
