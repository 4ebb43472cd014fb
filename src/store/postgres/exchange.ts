/**
 * Statements that travel together: one write to the server and one answer.
 *
 * Guarantees that the server runs them one after another, each with its own snapshot. After an
 * error it skips the rest, and the exchange is rejected with that error. A named statement is
 * prepared once on each connection, and its columns are described only then: the driver would ask
 * for the description at each use.
 */
import pg from "pg";
import { invariant } from "../../errors.ts";
import type { Cell } from "./rows.ts";

export interface Statement {
  text: string;
  /** Prepared under this name, once on each connection. */
  name?: string;
  values?: readonly unknown[];
}

/**
 * Reads whole numbers as numbers up to 2^53, and as bigints beyond. The driver reads all other
 * types.
 */
export const types: pg.CustomTypesConfig = {
  getTypeParser(oid: number, format?: "text" | "binary") {
    if (oid === pg.types.builtins.INT8 || oid === pg.types.builtins.NUMERIC) return wholeNumber;
    return pg.types.getTypeParser(oid, format);
  },
};

function wholeNumber(text: string): number | bigint {
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : BigInt(text);
}

type ParseCell = (text: string) => Cell;

/** The named statements that a connection has prepared, with the parsers of their columns. */
const preparedOn = new WeakMap<pg.ClientBase, Map<string, ParseCell[]>>();

/** Returns the rows of each statement. Throws the error of the driver. */
export function exchange(client: pg.ClientBase, statements: readonly Statement[]): Promise<Cell[][][]> {
  return new Promise((resolve, reject) => {
    client.query(
      new Exchange(client, statements, (error, rows) => {
        if (rows === undefined) reject(error);
        else resolve(rows);
      }),
    );
  });
}

/** A parameter as the server parses it. */
function parameterOf(value: unknown): string | null {
  if (value === null || value === undefined) return null;
  invariant(typeof value !== "object", "a parameter is a single value, and a list is a literal");
  return String(value);
}

/**
 * The driver calls the methods `handle...` in the order in which the messages of the server
 * arrive. It replaces `callback` for its time limit.
 */
class Exchange extends pg.Query {
  callback: (error: unknown, rows?: Cell[][][]) => void;
  readonly #prepared: Map<string, ParseCell[]>;
  readonly #statements: readonly (Statement & { parameters: (string | null)[] })[];
  readonly #rows: Cell[][][];
  readonly #parsers: ParseCell[][] = [];
  /** Statements that this exchange prepares. If it fails, they may be prepared or not. */
  readonly #preparing: string[] = [];
  /** The statement that the next message is about. */
  #at = 0;
  #misread: unknown = null;

  constructor(
    client: pg.ClientBase,
    statements: readonly Statement[],
    callback: (error: unknown, rows?: Cell[][][]) => void,
  ) {
    super({ text: "" });
    this.callback = callback;
    this.#prepared = preparedOn.get(client) ?? new Map();
    preparedOn.set(client, this.#prepared);
    this.#statements = statements.map((statement) => ({
      ...statement,
      parameters: (statement.values ?? []).map(parameterOf),
    }));
    this.#rows = statements.map(() => []);
  }

  override submit = (connection: pg.Connection): void => {
    connection.stream.cork();
    for (const { text, name = "", parameters } of this.#statements) {
      let parsers = this.#prepared.get(name);
      if (parsers === undefined) {
        parsers = [];
        // A failed exchange may have prepared it.
        if (name !== "") connection.close({ type: "S", name }, true);
        connection.parse({ name, text, types: [] }, true);
        connection.describe({ type: "S", name }, true);
        if (name !== "") {
          this.#prepared.set(name, parsers);
          this.#preparing.push(name);
        }
      }
      this.#parsers.push(parsers);
      connection.bind({ statement: name, values: parameters }, true);
      connection.execute({}, true);
    }
    connection.sync();
    connection.stream.uncork();
  };

  handleRowDescription({ fields }: { fields: readonly { dataTypeID: number }[] }): void {
    this.#parsers[this.#at]?.push(...fields.map((field) => types.getTypeParser(field.dataTypeID, "text")));
  }

  handleDataRow({ fields }: { fields: readonly (string | null)[] }): void {
    const parsers = this.#parsers[this.#at] ?? [];
    try {
      this.#rows[this.#at]?.push(
        fields.map((text, n) => {
          if (text === null) return null;
          const parse = parsers[n];
          invariant(parse !== undefined, "each column has been described");
          return parse(text);
        }),
      );
    } catch (error) {
      // Thrown from here, it would end the process.
      this.#misread ??= error;
    }
  }

  handleCommandComplete(): void {
    this.#at += 1;
  }

  handleEmptyQuery(): void {
    this.#at += 1;
  }

  handleError(error: unknown): void {
    for (const name of this.#preparing) this.#prepared.delete(name);
    this.callback(error);
  }

  handleReadyForQuery(): void {
    if (this.#misread !== null) this.handleError(this.#misread);
    else this.callback(null, this.#rows);
  }
}
