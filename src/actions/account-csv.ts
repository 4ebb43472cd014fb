/**
 * The CSV of an import of accounts: a line of column names, and a line for each account. Between
 * cells are commas, semicolons or tabs, as in the first line: copies from a spreadsheet fit. All
 * faults of the form are reported together. The API checks the values.
 */
import { CsvError, parse } from "csv-parse/sync";
import { firstOf, OperatorError } from "../errors.ts";
import { unknownName } from "../spelling.ts";
import { type ImportRow, importColumns } from "./account-import.ts";

/** Columns that no other account can have the same cell in. */
const uniqueColumns = ["account", "external_id", "payment"] as const;

/** Of windows of another system. */
const goneColumns = ["base_left", "base_start", "overage_left", "overage_start"];

const headRule = `The first line names the columns: account, and any of ${importColumns.slice(1).join(", ")}.`;

interface Line {
  cells: string[];
  number: number;
}

interface Fault {
  line: number;
  message: string;
}

/** `of`: what messages call the text. Throws an OperatorError with all faults of the form. */
export function importRowsIn(text: string, of: string): ImportRow[] {
  const [head, ...lines] = linesIn(text, of);
  if (head === undefined) throw new OperatorError(`${of} is empty. ${headRule}`);
  const faults = headFaults(head, lines.length);
  const whole = lines.filter(({ cells }) => cells.length === head.cells.length);
  const rows = whole.map(({ cells, number }) => rowOf(head.cells, cells, number));
  for (const { cells, number } of lines) {
    if (cells.length === head.cells.length) continue;
    const message = `it has ${cells.length} columns, and the first line has ${head.cells.length}`;
    faults.push({ line: number, message });
  }
  faults.push(...doublesIn(rows));
  if (faults.length === 0) return rows;
  faults.sort((one, other) => one.line - other.line);
  const shown = firstOf(faults.map(({ line, message }) => `line ${line}: ${message}`));
  throw new OperatorError([`Nothing was imported from ${of}:`, ...shown].join("\n"));
}

function headFaults({ cells, number: line }: Line, rows: number): Fault[] {
  const names: readonly string[] = importColumns;
  const messages = [
    ...cells.filter((name) => !names.includes(name)).map(unknownColumn),
    ...names
      .filter((name) => cells.indexOf(name) !== cells.lastIndexOf(name))
      .map((name) => `The column ${name} occurs twice.`),
    ...(cells.includes("account") ? [] : [`There is no column account. ${headRule}`]),
    ...(rows > 0 ? [] : ["There are no accounts below this line."]),
  ];
  return messages.map((message) => ({ line, message }));
}

function unknownColumn(name: string): string {
  if (goneColumns.includes(name))
    return `The column ${name} is gone: windows begin at the opening. Give what was left as additional credits (additional).`;
  return unknownName("column", shortened(name), importColumns);
}

/** A missing quote can make one cell of a whole file. */
function shortened(text: string): string {
  const characters = 80;
  return text.length > characters ? `${text.slice(0, characters).toWellFormed()}…` : text;
}

function doublesIn(rows: readonly ImportRow[]): Fault[] {
  return uniqueColumns.flatMap((column) => {
    const seen = new Set<string>();
    return rows.flatMap(({ line, [column]: cell }) => {
      if (cell === undefined || !seen.has(cell)) {
        if (cell !== undefined) seen.add(cell);
        return [];
      }
      return [{ line, message: `The ${column} ${JSON.stringify(shortened(cell))} occurs twice.` }];
    });
  });
}

function linesIn(text: string, of: string): Line[] {
  // A decoder puts this character in the place of bytes that are not UTF-8.
  if (text.includes("\uFFFD")) throw new OperatorError(`${of} is not UTF-8. Save it as "CSV UTF-8".`);
  try {
    const lines: Line[] = [];
    parse(text, {
      delimiter: /^[^\r\n]*?([,;\t])/.exec(text.trimStart())?.[1] ?? ",",
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
    if (error instanceof CsvError) throw new OperatorError(`${of} is not CSV: ${error.message}.`, error);
    throw error;
  }
}

/** An empty cell leaves its field as it is. */
function rowOf(names: readonly string[], cells: readonly string[], line: number): ImportRow {
  const row: ImportRow = { line, account: "" };
  for (const column of importColumns) {
    const cell = cells[names.indexOf(column)] ?? "";
    if (cell !== "") row[column] = cell;
  }
  return row;
}
