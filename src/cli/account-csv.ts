/**
 * The CSV files of `inkwell account import`: a line of column names, and a line for each account.
 *
 * Guarantees that every value is in the form that the operator API requires. All faults of a file
 * are reported at once, each with its line and column.
 */
import { readFileSync } from "node:fs";
import { CsvError, parse } from "csv-parse/sync";
import { importedAccountsMax } from "../accounts/account-import.ts";
import * as fields from "../accounts/fields.ts";
import { messageOf, OperatorError } from "../errors.ts";
import { defined } from "../objects.ts";
import { unknownName } from "../spelling.ts";
import type { AccountDraft } from "../store/contacts.ts";

/** The accounts of a file, and the line of each. */
export interface AccountsFile {
  drafts: AccountDraft[];
  lines: number[];
}

const columns = {
  account: fields.name,
  plan: fields.name,
  owner: fields.contact,
  email: fields.email,
  note: fields.remark,
  external_id: fields.contact,
} as const satisfies Record<string, fields.TextField>;
type ColumnName = keyof typeof columns;

const columnNames = Object.keys(columns);

/** Faults shown of one file. */
const faultsMax = 20;

interface Line {
  cells: string[];
  number: number;
}

/** Throws an OperatorError with the faults of the file. */
export function readAccounts(path: string): AccountsFile {
  const [head, ...rows] = linesIn(path);
  if (head === undefined) throw new OperatorError(`${path} is empty. ${headRule}`);
  const names = head.cells.map((name) => columnOf(name, path));
  const doubled = names.find((name, index) => names.indexOf(name) !== index);
  if (doubled !== undefined) throw new OperatorError(`${path} has the column ${doubled} twice.`);
  if (!names.includes("account")) throw new OperatorError(`${path} has no column account. ${headRule}`);
  if (rows.length === 0) throw new OperatorError(`${path} has no accounts below its first line.`);
  if (rows.length > importedAccountsMax) {
    throw new OperatorError(`${path} has more than ${importedAccountsMax} accounts. Import it in parts.`);
  }
  const faults: string[] = [];
  const drafts = rows.map((row) => draftOf(row, names, faults));
  refuseFaults(path, faults);
  return { drafts, lines: rows.map(({ number }) => number) };
}

/** Throws an OperatorError if there are faults. */
export function refuseFaults(path: string, faults: readonly string[]): void {
  if (faults.length === 0) return;
  const more = faults.length > faultsMax ? [`and ${faults.length - faultsMax} more`] : [];
  const shown = [...faults.slice(0, faultsMax), ...more].map((fault) => `  ${fault}`);
  throw new OperatorError(`Nothing was imported from ${path}:\n${shown.join("\n")}`);
}

const headRule = `The first line names the columns: account, and any of ${columnNames.slice(1).join(", ")}.`;

function columnOf(name: string, path: string): ColumnName {
  for (const known in columns) if (known === name && isColumn(known)) return known;
  const hint = /[;\t]/.test(name) ? " Separate columns with commas." : "";
  throw new OperatorError(`${path}: ${unknownName("column", shortened(name), columnNames)}${hint}`);
}

function isColumn(name: string): name is ColumnName {
  return columnNames.includes(name);
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

/** Adds the faults of the line to `faults`. An empty cell leaves its field as it is. */
function draftOf({ cells, number }: Line, names: readonly ColumnName[], faults: string[]): AccountDraft {
  const found: Partial<Record<ColumnName, string>> = {};
  if (cells.length !== names.length) {
    faults.push(`line ${number}: it has ${cells.length} columns, and the first line has ${names.length}`);
  }
  for (const [index, name] of names.entries()) {
    const cell = cells[index] ?? "";
    if (cell === "" && name !== "account") continue;
    const { pattern, rule } = columns[name];
    if (pattern.test(cell)) found[name] = cell;
    else faults.push(`line ${number}, column ${name}: ${JSON.stringify(shortened(cell))} must be ${rule}`);
  }
  const { account: id = "", plan = null, owner, email, note, external_id: externalId } = found;
  return { id, plan, contact: defined({ owner, email, note, externalId }), key: null };
}

/** A missing quote can make one cell of a whole file. */
function shortened(text: string): string {
  const characters = 80;
  return text.length > characters ? `${text.slice(0, characters)}…` : text;
}
