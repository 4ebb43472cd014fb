/**
 * The CSV files of `inkwell account import`: a line of column names, and a line for each account.
 *
 * Guarantees that a file that can be read at all is read completely: the faults of its form are
 * reported together with those of its values.
 */
import { readFileSync } from "node:fs";
import { CsvError, parse } from "csv-parse/sync";
import {
  balanceFields,
  type ImportedAccount,
  type ImportField,
  type ImportProblem,
  importedAccountsMax,
  importProblemsShown,
  shortened,
} from "../accounts/account-import.ts";
import { messageOf, OperatorError } from "../errors.ts";
import { defined } from "../objects.ts";
import { unknownName } from "../spelling.ts";
import { grouped } from "../units.ts";

/** The accounts of a file, and the line of each. */
interface AccountsFile {
  path: string;
  accounts: ImportedAccount[];
  lines: number[];
  /** Faults of the form, such as an unknown column. */
  faults: FileFault[];
  /** Columns that are missing, and that an unknown column may have been meant for. */
  mayBeMisspelled: ReadonlySet<string>;
}

interface FileFault {
  line: number;
  /** Null: the line as a whole. */
  column: string | null;
  message: string;
}

const columnNames = [
  ...(["account", "plan", "owner", "email", "note", "external_id"] as const),
  ...balanceFields,
];
type ColumnName = (typeof columnNames)[number];

interface Line {
  cells: string[];
  number: number;
}

/** Throws an OperatorError if the file cannot be read or has no accounts. */
export function readAccounts(path: string): AccountsFile {
  const [head, ...rows] = linesIn(path);
  if (head === undefined) throw new OperatorError(`${path} is empty. ${headRule}`);
  if (rows.length > importedAccountsMax) {
    const most = grouped(importedAccountsMax);
    throw new OperatorError(`${path} has more than ${most} accounts. Import it in parts.`);
  }
  const missing = columnNames.filter((name) => !head.cells.includes(name));
  const file: AccountsFile = {
    ...{ path, accounts: [], lines: [], faults: headFaults(head, rows.length) },
    mayBeMisspelled: new Set(head.cells.every(isColumn) ? [] : missing),
  };
  if (!head.cells.includes("account")) return file;
  for (const { cells, number } of rows) {
    if (cells.length === head.cells.length) {
      file.accounts.push(accountOf(head.cells, cells));
      file.lines.push(number);
    } else {
      const message = `it has ${cells.length} columns, and the first line has ${head.cells.length}`;
      file.faults.push({ line: number, column: null, message });
    }
  }
  return file;
}

/**
 * Throws an OperatorError with the faults of the file and the problems of its accounts, if there
 * are any. `done`: the number of accounts that were imported before.
 */
export function refuseFaults(
  { path, lines, faults, mayBeMisspelled }: AccountsFile,
  problems: readonly ImportProblem[],
  done: number,
): void {
  const columnOf = (field: ImportField) => (field === "id" ? "account" : field);
  const ofAccounts = problems.map(({ index, field, message }) => ({
    line: lines[index] ?? 0,
    column: columnOf(field),
    message,
  }));
  const all = [...faults, ...ofAccounts.filter(({ column }) => !mayBeMisspelled.has(column))].toSorted(
    (one, other) => one.line - other.line,
  );
  if (all.length === 0) return;
  const shown = all
    .slice(0, importProblemsShown)
    .map(
      ({ line, column, message }) =>
        `  line ${line}${column === null ? "" : `, column ${column}`}: ${message}`,
    );
  const more = all.length > shown.length ? [`  and ${all.length - shown.length} more`] : [];
  const imported = done === 0 ? "Nothing was" : `Only the first ${grouped(done)} accounts were`;
  throw new OperatorError([`${imported} imported from ${path}:`, ...shown, ...more].join("\n"));
}

const headRule = `The first line names the columns: account, and any of ${columnNames.slice(1).join(", ")}.`;

function headFaults({ cells, number: line }: Line, rows: number): FileFault[] {
  const unknown = cells.filter((name) => !isColumn(name));
  const doubled = columnNames.filter((name) => cells.indexOf(name) !== cells.lastIndexOf(name));
  const messages = [
    ...unknown.map((name) => {
      const hint = /[;\t]/.test(name) ? " Separate columns with commas." : "";
      return `${unknownName("column", shortened(name), columnNames)}${hint}`;
    }),
    ...doubled.map((name) => `The column ${name} occurs twice.`),
    ...(cells.includes("account") ? [] : [`There is no column account. ${headRule}`]),
    ...(rows > 0 ? [] : ["There are no accounts below this line."]),
  ];
  return messages.map((message) => ({ line, column: null, message }));
}

function isColumn(name: string): name is ColumnName {
  return columnNames.some((known) => known === name);
}

function linesIn(path: string): Line[] {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(path));
    const lines: Line[] = [];
    parse(text, {
      record_delimiter: ["\r\n", "\n", "\r"],
      relax_column_count: true,
      skip_empty_lines: true,
      trim: true,
      on_record: (cells: string[], { lines: number }) => {
        lines.push({ cells, number });
        return null;
      },
    });
    return lines;
  } catch (error) {
    if (error instanceof CsvError) throw new OperatorError(`${path} is not CSV: ${error.message}.`, error);
    if (error instanceof TypeError) {
      throw new OperatorError(`${path} is not UTF-8. Save it as "CSV UTF-8".`, error);
    }
    throw new OperatorError(`${path} cannot be read: ${messageOf(error)}.`, error);
  }
}

/** An empty cell leaves its field as it is. */
function accountOf(names: readonly string[], cells: readonly string[]): ImportedAccount {
  const found: Partial<Record<ColumnName, string>> = {};
  for (const [index, name] of names.entries()) {
    const cell = cells[index] ?? "";
    if (isColumn(name) && cell !== "") found[name] = cell;
  }
  const { account: id = "", plan = null, owner, email, note, external_id: externalId, ...balances } = found;
  return { id, plan, contact: defined({ owner, email, note, externalId }), balances };
}
