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
import { postgresError } from "./errors.ts";
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
    if (oid === pg.types.builtins.INT8 || oid === pg.types.builtins.NUMERIC) return integerIn;
    return pg.types.getTypeParser(oid, format);
  },
};

function integerIn(text: string): number | bigint {
  const number = Number(text);
  return Number.isSafeInteger(number) ? number : BigInt(text);
}

type ParseCell = (text: string) => Cell;

/** The named statements that a connection has prepared, with the parsers of their columns. */
const preparedOn = new WeakMap<pg.ClientBase, Map<string, ParseCell[]>>();

/** Returns the rows of each statement. Throws converted errors (errors.ts). */
export async function exchange(client: pg.ClientBase, statements: readonly Statement[]): Promise<Cell[][][]> {
  const sent = new Exchange(client, statements);
  await new Promise<void>((resolve, reject) => {
    sent.callback = (error) => (error === null ? resolve() : reject(postgresError(error)));
    client.query(sent);
  });
  return sent.cells();
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
  /** `error` is null when the server has answered all statements. */
  callback: (error: unknown) => void = () => {};
  readonly #prepared: Map<string, ParseCell[]>;
  readonly #statements: readonly (Statement & { parameters: (string | null)[] })[];
  readonly #received: (readonly (string | null)[])[][];
  readonly #parsers: ParseCell[][] = [];
  /** The statement that the next message is about. */
  #at = 0;
  #isRolledBack = false;

  constructor(client: pg.ClientBase, statements: readonly Statement[]) {
    super({ text: "" });
    this.#prepared = preparedOn.get(client) ?? new Map();
    preparedOn.set(client, this.#prepared);
    this.#statements = statements.map((statement) => ({
      ...statement,
      parameters: (statement.values ?? []).map(parameterOf),
    }));
    this.#received = statements.map(() => []);
  }

  /** Parses the rows. The driver would end the process if one of its methods threw an error. */
  cells(): Cell[][][] {
    return this.#received.map((rows, at) => {
      const parsers = this.#parsers[at] ?? [];
      return rows.map((fields) =>
        fields.map((text, n) => {
          if (text === null) return null;
          const parse = parsers[n];
          invariant(parse !== undefined, "each column has been described");
          return parse(text);
        }),
      );
    });
  }

  override submit = (connection: pg.Connection): void => {
    connection.stream.cork();
    for (const { text, name = "", parameters } of this.#statements) {
      let parsers = this.#prepared.get(name);
      if (parsers === undefined) {
        parsers = [];
        if (name !== "") {
          // A failed exchange may have prepared it.
          connection.close({ type: "S", name }, true);
          this.#prepared.set(name, parsers);
        }
        connection.parse({ name, text, types: [] }, true);
        connection.describe({ type: "S", name }, true);
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
    this.#received[this.#at]?.push(fields);
  }

  handleCommandComplete({ text }: { text: string }): void {
    if (text === "ROLLBACK") this.#isRolledBack = true;
    this.#at += 1;
  }

  handleEmptyQuery(): void {
    this.#at += 1;
  }

  /**
   * Forgets all statements: this one's may not be prepared, and the server may no longer have any
   * of them as described.
   */
  handleError(error: unknown): void {
    this.#prepared.clear();
    this.callback(error);
  }

  handleReadyForQuery(): void {
    // The server answers so to the commit of a transaction that has failed.
    if (this.#isRolledBack) this.handleError(new Error("PostgreSQL rolled back in place of a commit"));
    else this.callback(null);
  }
}
