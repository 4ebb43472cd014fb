/** Rows of accounts in one request: some of them at a time, each with what became of it. */
import Type, { type Static } from "typebox";
import { closed, count, objectFor, orNull, text } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { isLasting } from "../../actions/account-import.ts";
import { ApiError } from "../../actions/api-error.ts";
import type { BoundAction } from "../../actions/bind.ts";
import { propertiesOf } from "../../actions/input.ts";
import { rowsDefault } from "../../actions/page-fields.ts";
import { pageSchema, wrongCursor } from "../../actions/pages.ts";
import { defined } from "../../objects.ts";
import { explain } from "../openai-format/explain.ts";
import { operatorResponseTo } from "./refusals.ts";

export interface RowResult {
  account: string;
  /** Of a CSV file. */
  line?: number;
  result: "opened" | "updated" | "unchanged" | "refused";
  text: string;
  credits?: number;
  /** An invitation that is not mailed. */
  made?: { email: string; url: string } | undefined;
}

const rowResultObject = objectFor<RowResult>("RowResult")({
  line: [orNull(Type.Integer({ description: "of the CSV file" })), ({ line = null }) => line],
  account: [text, ({ account }) => account],
  result: [Type.Enum(["opened", "updated", "unchanged", "refused"]), ({ result }) => result],
  text: [
    Type.String({ description: "what changes, with the values before, or why it is refused" }),
    (row) => row.text,
  ],
  credits: [
    orNull(Type.Integer({ description: "additional credits that the row adds" })),
    (row) => row.credits ?? null,
  ],
  email: [orNull(text), ({ made }) => made?.email ?? null],
  link: [
    orNull(Type.String({ description: "shown only here; null if it was mailed, or none was made" })),
    ({ made }) => made?.url ?? null,
  ],
});

export const rowsPage = closed({ ...pageSchema(rowResultObject.schema).properties, total: count });

interface Place {
  limit?: number | undefined;
  after?: string | undefined;
}

/** Returns the rows after the one with this name, and applies them. */
export async function pageOfRows<Row>(
  all: readonly Row[],
  { limit = rowsDefault, after }: Place,
  nameOf: (row: Row) => string,
  apply: (rows: readonly Row[]) => Promise<RowResult[]>,
): Promise<Static<typeof rowsPage>> {
  const first = after === undefined ? 0 : all.findIndex((row) => nameOf(row) === after) + 1;
  if (after !== undefined && first === 0) throw wrongCursor();
  const rows = all.slice(first, first + limit);
  const last = rows.at(-1);
  const next = first + rows.length < all.length && last !== undefined ? nameOf(last) : null;
  return { data: (await apply(rows)).map(rowResultObject.of), next, total: all.length };
}

const schemas = new WeakMap<object, ReturnType<typeof closed>>();

/** Runs an action with the checks of its route. */
export async function runChecked<Result>(
  { action, run }: BoundAction<OperatorActions, Result>,
  operator: OperatorActions,
  input: object,
) {
  const schema = schemas.getOrInsertComputed(action, () => closed(propertiesOf(action.input)));
  const json = defined(input);
  const fault = explain(schema, json, "");
  if (fault !== null) throw fault;
  return await run(operator, json);
}

/** Returns an error as clients of the API get it. Its cause is the error. */
export function apiErrorOf(error: unknown): ApiError {
  const { status, code, message, param } = operatorResponseTo(error);
  return Object.assign(new ApiError(status, code, message, param), { cause: error });
}

/** Returns the row of an error. Throws one that concerns not this row alone. */
export function refusedRow(account: string, error: unknown): RowResult {
  const refusal = apiErrorOf(error);
  if (isLasting(refusal)) throw error;
  return { account, result: "refused", text: refusal.message };
}
