/** Statements, and the words of SQL in which the two databases differ. */
import type { EpochMs } from "../units.ts";
import { invitationIssuer } from "./invitations.ts";
import type { Table, Value } from "./table.ts";

export interface SqlStatement {
  text: string;
  values: readonly Value[];
  /** Prepared under this name, once on each connection. */
  name?: string;
  /** It only locks rows, for the statements after it: these see what was written before. */
  isLock?: true;
}

export interface SqlDialect {
  /** The parameter with this number, from 1. */
  parameter(n: number): string;
  /** Ledger time. */
  ledgerMs(): EpochMs;
  /** The items of a JSON array as rows: `e.value`. Nothing if the array is null. */
  items(array: string): string;
  /** Ends a selection whose rows stay locked until the transaction ends. */
  forUpdate: "" | " for update";
}

/** The parameters of a list of values, from the first on. */
export function parametersOf(values: readonly unknown[], parameter: SqlDialect["parameter"]): string {
  return values.map((_, index) => parameter(index + 1)).join(", ");
}

/** Reads a cell of text that can be null. */
export function textOrNull(cell: unknown): string | null {
  return cell === null ? null : String(cell);
}

/**
 * Returns a text as SQL's `lower` returns a column, on both databases: only A to Z have another
 * case. PostgreSQL would change a parameter by the rules of its locale.
 */
export function inLowerCase(text: string): string {
  return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
}

/** A condition: the account with the alias `a` is not closed at this time. */
export function isOpenAccount(ledgerMs: string): string {
  return `a.state <> 'closed' and (a.ends_ms is null or a.ends_ms > ${ledgerMs})`;
}

/** A condition: nobody has used a link of invitation `i`, nor an earlier one of its account. */
export const hasNotCome = `i.used_ms is null and not exists (select 1 from person p
  where p.account = i.account and p.issuer = '${invitationIssuer}')`;

/** A condition: a request of the account has finished. */
export function hasUsed(account: string): string {
  return `exists (select 1 from charge c where c.account = ${account})`;
}

/**
 * Locks an account until the transaction ends. An exchange of an invitation, a link of a person
 * and an erase lock it first, in place of a deadlock.
 */
export function lockAccount(id: string, { parameter, forUpdate }: SqlDialect): SqlStatement {
  return {
    text: `select id from account where id = ${parameter(1)}${forUpdate}`,
    values: [id],
    isLock: true,
  };
}

/** Returns what the first of these statements that is no lock has returned. */
export function answerOf<Rows>(statements: readonly SqlStatement[], rows: readonly Rows[]): Rows | undefined {
  return rows[statements.findIndex(({ isLock }) => isLock !== true)];
}

/** Inserts a row. */
export function insertOf<R>(table: Table<R>, row: R, parameter: SqlDialect["parameter"]): SqlStatement {
  return {
    text: `insert into ${table.name} (${table.list()}) values (${parametersOf(table.columns, parameter)})`,
    values: table.valuesOf(row),
  };
}

/** Inserts a row, unless one with the same key is there. Returns its id if it is inserted. */
export function insertOnce<R>(table: Table<R>, row: R, parameter: SqlDialect["parameter"]): SqlStatement {
  const { text, values } = insertOf(table, row, parameter);
  return { text: `${text} on conflict do nothing returning id`, values };
}
