/**
 * Single changes by hand in the database: the audit names each, or a seal does. Cells of a small
 * ledger are changed and rows deleted, one at a time, with the triggers dropped. Each column is
 * changed in one row of its table, and in every eighth of the other rows. A number gets one more
 * or one less, in turn. Before a release every cell is changed, a number both ways, and every row
 * deleted. Changes of several rows are in named-tampering.test.ts.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { readSeal, sealText } from "../../src/store/seal.ts";
import { backends } from "../fixtures/backends.ts";
import { literal, openTampered, type TamperedLedger } from "../fixtures/tampered-ledger.ts";
import { isThorough } from "../fixtures/thorough.ts";
import { start } from "../fixtures/times.ts";

/**
 * Columns that are neither facts nor follow from them: rates, times of the last use, when holds
 * began and expire, texts for people, the recorded clock.
 */
const states: Readonly<Record<string, readonly string[]>> = {
  account: ["requests_tat_ms", "tokens_tat_ms", "tokens_limit"],
  hold: [
    "id",
    "model",
    "created_ms",
    "expires_ms",
    "extension",
    "extended",
    "metered_tokens",
    "reasoning_tokens",
  ],
  api_key: ["last_four", "words", "last_used_ms", "requests_tat_ms", "tokens_tat_ms", "tokens_limit"],
  usage_summed: ["id"],
  clock: ["id", "elapsed_ms", "ledger_ms", "accepted_ms"],
};

/** Facts that nothing repeats, in some rows at least: only a seal knows what they were. */
const sealed: Readonly<Record<string, readonly string[]>> = {
  journal: ["op", "by", "subject", "after", "at_ms", "kind", "amount", "grant_seq", "bucket"],
  charge: [
    "id",
    "model",
    "ending",
    "by",
    "estimated",
    "note",
    "reasoning_tokens",
    "late",
    "at_ms",
    "key",
    "cached_tokens",
    "price_prompt",
    "price_completion",
    "price_cached_prompt",
    "plan_version",
  ],
  plan_version: [
    "version",
    "created_ms",
    "requests_per_minute",
    "tokens_per_minute",
    "concurrent",
    "models",
    "timezone",
  ],
  plan_file: ["epoch", "fingerprint", "applied_ms", "by", "plans", "delete"],
  usage_close: ["through", "day", "timezone", "delete"],
};

const tables = [
  "account",
  "later_grant",
  "hold",
  "api_key",
  "journal",
  "credit_grant",
  "charge",
  "plan_version",
  "plan_file",
  "usage_sum",
  "usage_summed",
  "usage_close",
  "clock",
];

describe("a single change in the database", () => {
  let ledger: TamperedLedger;
  let changes = 0;

  before(async () => {
    const sqlite = backends.find(({ name }) => name === "SQLite");
    assert.ok(sqlite !== undefined);
    ledger = await openTampered(sqlite);
  });
  after(() => ledger.remove());

  for (const table of tables) {
    test(`of ${table}: it is named`, async (t) => {
      const missed: string[] = [];
      const counted = { audit: 0, seal: 0 };
      const change = async (column: string, statement: string) => {
        const { audit, seal } = await ledger.after([statement]);
        const byAudit = audit.length > 0;
        const isNamed = byAudit || (seal.length > 0 && sealed[table]?.includes(column) === true);
        if (!isNamed) missed.push(statement);
        counted[byAudit ? "audit" : "seal"] += 1;
      };
      const rows = await rowsOf(ledger, table);
      assert.ok(rows.length > 0, `${table} has rows`);
      for (const [n, { where, cells }] of rows.entries()) {
        for (const [m, [column, cell]] of cells.entries()) {
          if (states[table]?.includes(column) || !isRead(table, { column, cell, cells: new Map(cells) }))
            continue;
          if (!isTried(n, m)) continue;
          const values = others(cell);
          const tried = isThorough ? values : [values[(n + m) % values.length]];
          for (const value of tried)
            await change(column, `update ${table} set "${column}" = ${value} where ${where}`);
        }
        if (isTried(n, 0)) await change("delete", `delete from ${table} where ${where}`);
      }
      const { audit, seal } = counted;
      changes += audit + seal;
      assert.deepEqual(missed, [], `of ${audit + seal} changes`);
      t.diagnostic(`${audit + seal} changes of ${table}, of which only a seal names ${seal}`);
    });
  }

  test("they are many, and all of them were taken back", async (t) => {
    t.diagnostic(`${changes} changes of ${tables.length} tables`);
    assert.deepEqual(await ledger.after([]), { audit: [], seal: [] });
  });
});

test("a seal that was changed or cut off is refused", () => {
  const text = sealText(start, [{ name: "account ada", last: 3, sha256: "0".repeat(64) }]);
  assert.throws(() => readSeal(text.replace("ada 3", "ada 4"), "f.seal"), /f\.seal is damaged/);
  assert.throws(() => readSeal(text.slice(0, 100), "f.seal"), /f\.seal is damaged/);
  assert.throws(() => readSeal("hello\n", "f.seal"), /f\.seal is no seal: its first line must be/);
});

function isTried(row: number, column: number): boolean {
  return isThorough || row < 1 || (row + column) % 8 === 0;
}

interface Cell {
  column: string;
  cell: unknown;
  cells: ReadonlyMap<string, unknown>;
}

/**
 * A closed account has no windows, so nobody reads the cells beside their null numbers. A hold has
 * no cost until its first checkpoint, and the same one for any count of cached tokens that cost as
 * others do. A check of the table alone refuses more of them than prompt tokens.
 */
function isRead(table: string, { column, cells }: Cell): boolean {
  if (table === "hold" && column === "cached_tokens")
    return cells.get("price_cached_prompt") !== cells.get("price_prompt");
  if (table === "hold" && column.startsWith("price_")) return cells.get("completion_tokens") !== 0;
  const [bucket = ""] = /^(base|overage)(?=_)/.exec(column) ?? [];
  return (
    table !== "account" || bucket === "" || column === `${bucket}_seq` || cells.get(`${bucket}_seq`) !== null
  );
}

interface Row {
  /** A condition that only this row meets. */
  where: string;
  cells: [column: string, cell: unknown][];
}

async function rowsOf(ledger: TamperedLedger, table: string): Promise<Row[]> {
  const columns = await ledger.rows(`select name, pk from pragma_table_info('${table}') order by pk`);
  const keys = columns.flatMap(({ name, pk }) => (Number(pk) > 0 ? [String(name)] : []));
  const identifying = keys.length === 0 ? ["rowid"] : keys;
  const rows = await ledger.rows(`select ${keys.length === 0 ? "rowid, " : ""}* from ${table}`);
  return rows.map((row) => ({
    where: identifying.map((key) => `${key} = ${textOf(row[key])}`).join(" and "),
    cells: columns.map(({ name }) => [String(name), row[String(name)]]),
  }));
}

function textOf(cell: unknown): string {
  return typeof cell === "number" ? String(cell) : literal(String(cell));
}

/** Other values of a cell, as SQL. */
function others(cell: unknown): string[] {
  if (typeof cell === "number") return [String(cell + 1), ...(cell > 0 ? [String(cell - 1)] : [])];
  if (cell === null) return ["1"];
  const text = String(cell);
  return text.startsWith("[") ? ["'[]'"] : [literal(`x${text}`)];
}
