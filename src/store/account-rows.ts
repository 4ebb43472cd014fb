/**
 * Reads rows of accounts, and finds out whether they can be used.
 *
 * A row is compared with the facts that it summarises: its buckets with the newest journal entry,
 * and its windows with the grants that they name. So a manual change of the row is found before it
 * moves credits. Guarantees that a damaged row never throws, because it would fail the requests of
 * other accounts in the same commit. Amounts beyond 2^53 are read as inexact numbers, which no
 * check of the ledger accepts.
 */
import { messageOf } from "../errors.ts";
import { type AccountRow, fieldOf, windowBuckets } from "../ledger/rows.ts";
import { emptyAccount } from "../ledger/unit-of-work.ts";
import { accountTable } from "./tables.ts";

/** A row, and why it cannot be used. Null: it agrees with its facts. */
export interface ReadAccount {
  row: AccountRow;
  problem: string | null;
}

const entryFacts = ["seq", "base_after", "overage_after", "additional_after"];
const grantFacts = ["amount", "anchor_ms", "starts_ms", "ends_ms", "since"];

/** Number of cells of `accountFacts`. */
export const factsLength = entryFacts.length + windowBuckets.length * grantFacts.length;

/** The facts about the account `a`: their columns, and the joins for each database. */
export const accountFacts = {
  columns: [
    ...entryFacts.map((column) => `fact_entry.${column}`),
    ...windowBuckets.flatMap((bucket) => grantFacts.map((column) => `fact_${bucket}.${column}`)),
  ].join(", "),
  sqliteJoins: [
    `left join journal fact_entry on fact_entry.account = a.id
      and fact_entry.seq = (select max(seq) from journal where account = a.id)`,
    ...windowBuckets.map(
      (bucket) => `left join credit_grant fact_${bucket} on fact_${bucket}.account = a.id
        and fact_${bucket}.seq = a.${bucket}_grant and fact_${bucket}.bucket = '${bucket}'`,
    ),
  ].join("\n"),
  // The limits keep the planner from reading a whole table to join it with a batch of accounts.
  postgresJoins: [
    `left join lateral (
      select * from journal where account = a.id order by seq desc limit 1
    ) fact_entry on true`,
    ...windowBuckets.map(
      (bucket) => `left join lateral (
        select * from credit_grant where account = a.id and seq = a.${bucket}_grant and bucket = '${bucket}' limit 1
      ) fact_${bucket} on true`,
    ),
  ].join("\n"),
};

/** Returns the account of these cells. Its facts have not been read. */
export function accountOf(cells: readonly unknown[]): ReadAccount {
  const numbers = cells.map((cell) => (typeof cell === "bigint" ? Number(cell) : cell));
  try {
    return { row: accountTable.rowOf(numbers), problem: null };
  } catch (error) {
    return { row: { ...emptyAccount, id: String(cells[0]) }, problem: messageOf(error) };
  }
}

/** Returns the account of cells that `accountFacts` follow. */
export function checkedAccountOf(cells: readonly unknown[]): ReadAccount {
  const length = accountTable.columns.length;
  return checked(accountOf(cells.slice(0, length)), cells.slice(length, length + factsLength));
}

/** Compares an account with the cells of its facts. */
export function checked({ row, problem }: ReadAccount, facts: readonly unknown[]): ReadAccount {
  return { row, problem: problem ?? contradictionOf(row, facts) };
}

function contradictionOf(row: AccountRow, facts: readonly unknown[]): string | null {
  const [seq, base, overage, additional] = facts;
  if (seq === null) return "it has no journal entry";
  const entry = [
    ["seq", seq],
    ["base", base],
    ["overage", overage],
    ["additional", additional],
  ] as const;
  for (const [field, fact] of entry)
    if (row[field] !== Number(fact))
      return `its ${field} is ${row[field]}, and its journal ends with ${fact}`;
  for (const [n, bucket] of windowBuckets.entries()) {
    const { cap, anchorMs, startsMs, endsMs, since, grant } = fieldOf[bucket];
    const fields = [cap, anchorMs, startsMs, endsMs, since];
    const first = entryFacts.length + n * grantFacts.length;
    if (facts[first] === null) return `the grant ${row[grant]} of its ${bucket} window is missing`;
    for (const [index, field] of fields.entries()) {
      const fact = facts[first + index];
      if (row[field] !== Number(fact))
        return `its ${columnOf(field)} is ${row[field]}, and its grant has ${fact}`;
    }
  }
  return null;
}

function columnOf(field: keyof AccountRow): string | undefined {
  return accountTable.columns.find((column) => column.field === field)?.name;
}
