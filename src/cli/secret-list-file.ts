/**
 * A CSV file with the secrets of an import, which only its owner can read. A secret is on disk
 * when `add` resolves.
 *
 * A file of an earlier import is continued, and what a stop in the middle of a line has left is
 * removed. Any other file is refused, and stays as it is.
 */
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { dirname } from "node:path";
import { CsvError, parse } from "csv-parse/sync";
import { csvOf } from "../accounts/csv.ts";
import { parseKey } from "../accounts/keys.ts";
import type { SecretList } from "../actions/account-import.ts";
import { codeOf, messageOf, OperatorError } from "../errors.ts";
import { flushFolder, isOnlyOf } from "../secret-file.ts";

interface Kind {
  columns: readonly string[];
  /** Columns that name what the secret is of. */
  names: number;
  isSecret(text: string): boolean;
}

const kinds = {
  keys: {
    columns: ["account", "key_id", "key"],
    names: 1,
    isSecret: (text) => parseKey(text) === "ok",
  },
  links: {
    columns: ["account", "email", "link"],
    names: 2,
    isSecret: (text) => /#invite=[\w-]{43}$/.test(text),
  },
} as const satisfies Record<string, Kind>;

const lineEnd = "\r\n";

export class SecretListFile implements SecretList, AsyncDisposable {
  readonly #path: string;
  readonly #kind: Kind;
  /** Null: a dry run, which has found no file. */
  readonly #handle: FileHandle | null;
  readonly #listed = new Set<string>();
  /** Of an earlier import. Null: there is none. */
  first: string | null = null;

  private constructor(path: string, kind: Kind, handle: FileHandle | null) {
    this.#path = path;
    this.#kind = kind;
    this.#handle = handle;
  }

  /** Opens the file, or makes it. Throws an OperatorError if it is another one. */
  static async open(path: string, kind: keyof typeof kinds, dryRun: boolean): Promise<SecretListFile> {
    const { O_RDONLY, O_RDWR, O_CREAT, O_APPEND, O_NOFOLLOW, O_NONBLOCK } = constants;
    const flags = dryRun ? O_RDONLY : O_RDWR | O_CREAT | O_APPEND;
    const file = await open(path, flags | O_NOFOLLOW | O_NONBLOCK, 0o600).catch((error: unknown) => {
      if (dryRun && codeOf(error) === "ENOENT") return null;
      throw new OperatorError(`${path} cannot be opened: ${messageOf(error)}. Nothing was imported.`, error);
    });
    const list = new SecretListFile(path, kinds[kind], file);
    try {
      if (file !== null) await list.#read(file, dryRun);
      return list;
    } catch (error) {
      await file?.close();
      throw error;
    }
  }

  async #read(file: FileHandle, dryRun: boolean): Promise<void> {
    const found = await file.stat();
    if (found.isFile() && !isOnlyOf(process.getuid?.(), found)) {
      throw new OperatorError(
        `Other users can read ${this.#path}. Nothing was imported. Make it yours alone: chown, chmod 600`,
      );
    }
    const text = found.isFile() ? await file.readFile("utf8") : null;
    const lines = text === null ? null : linesIn(text, this.#kind);
    if (text === null || lines === null) {
      throw new OperatorError(
        `${this.#path} already exists, and has other columns or lines than ${this.#kind.columns.join(",")}. Nothing was imported. Name a new file, or that of an earlier import.`,
      );
    }
    this.first = lines[0]?.at(-1) ?? null;
    for (const cells of lines) this.#listed.add(this.#nameOf(cells));
    if (dryRun) return;
    const whole = csvOf([this.#kind.columns, ...lines]);
    if (whole.startsWith(text)) await file.appendFile(whole.slice(text.length));
    else await file.truncate(Buffer.byteLength(whole));
    await file.sync();
    await flushFolder(dirname(this.#path));
  }

  #nameOf(cells: readonly string[]): string {
    return csvOf([cells.slice(0, this.#kind.names)]);
  }

  has(...names: string[]): boolean {
    return this.#listed.has(this.#nameOf(names));
  }

  async add(...cells: string[]): Promise<void> {
    try {
      await this.#handle?.appendFile(csvOf([cells]));
      await this.#handle?.sync();
    } catch (error) {
      throw new OperatorError(`${this.#path} cannot be written: ${messageOf(error)}.`, error);
    }
    this.#listed.add(this.#nameOf(cells));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle?.close();
  }
}

/**
 * Returns the lines below the first one, without one that a stop has cut. Null: no import has
 * written this, or another program has changed it.
 */
function linesIn(text: string, { columns, isSecret }: Kind): string[][] | null {
  if (csvOf([columns]).startsWith(text)) return [];
  const end = text.lastIndexOf(lineEnd) + lineEnd.length;
  const isLine = (cells: readonly string[]) =>
    cells.length === columns.length && isSecret(cells.at(-1) ?? "");
  const lines = [
    ...cellsIn(text.slice(0, end)).slice(1),
    ...cellsIn(text.slice(end).replace(/\r$/, "")).filter(isLine),
  ];
  const whole = csvOf([columns, ...lines]);
  return lines.every(isLine) && (whole.startsWith(text) || text.startsWith(whole)) ? lines : null;
}

function cellsIn(text: string): string[][] {
  try {
    return parse(text, { record_delimiter: lineEnd, relax_column_count: true });
  } catch (error) {
    if (error instanceof CsvError) return [];
    throw error;
  }
}
