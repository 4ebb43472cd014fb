/**
 * Builds the end of a statement: its conditions, its order and its page, with numbered parameters.
 */
import { invariant } from "../errors.ts";
import type { SqlDialect } from "./sql.ts";
import { pageRowsMax } from "./store.ts";
import type { Value } from "./table.ts";

/** The conditions of one statement, joined by "and", and what follows them. */
export class Conditions {
  readonly values: Value[] = [];
  readonly #parameter: SqlDialect["parameter"];
  #sql = "";

  constructor(parameter: SqlDialect["parameter"]) {
    this.#parameter = parameter;
  }

  get sql(): string {
    return this.#sql;
  }

  /** Each `?` is one of the operands. A condition without a first operand is left out. */
  and(condition: string, ...operands: (Value | undefined)[]): this {
    if (operands[0] === undefined) return this;
    return this.always(this.bind(condition, ...operands));
  }

  /** Adds a condition without parameters. */
  always(condition: string): this {
    this.#sql += `${this.#sql === "" ? " where" : " and"} ${condition}`;
    return this;
  }

  /** Returns the expression with a parameter for each `?`. */
  bind(expression: string, ...operands: (Value | undefined)[]): string {
    let n = this.values.length;
    this.values.push(...operands.map((operand) => operand ?? null));
    return expression.replaceAll("?", () => {
      n += 1;
      return this.#parameter(n);
    });
  }

  page(order: string, limit: number): this {
    this.values.push(pageSize(limit));
    this.#sql += ` order by ${order} limit ${this.#parameter(this.values.length)}`;
    return this;
  }
}

/** Returns the limit of a page, which is at most `pageRowsMax`. */
export function pageSize(limit: number): number {
  invariant(
    Number.isInteger(limit) && limit >= 1 && limit <= pageRowsMax,
    `a page has 1 to ${pageRowsMax} rows`,
  );
  return limit;
}
