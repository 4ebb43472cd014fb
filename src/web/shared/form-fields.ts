/** The fields of a form, their values, and what is wrong with these. */
import { renameField } from "../../actions/field.ts";
import { wholeNumberIn } from "./numbers.ts";

/** The typed values, by the name of the field. */
export type Values = Readonly<Record<string, string>>;

export interface FieldOf {
  /** As in the API, where it names a refused field: `spending_caps.credits`. */
  name: string;
  label: string;
  kind?: "text" | "number" | "moment" | "select" | "email" | "file" | "models" | "rows";
  hint?: string;
  initial?: string;
  isRequired?: boolean;
  /** Smallest number that the field takes. */
  min?: number;
  /** Returns what is wrong with a value of the right form, or null. */
  check?(values: Values): string | null;
  /** Of a select. Of models: the only ones. */
  options?: readonly (readonly [value: string, title: string])[];
  /** Of rows: the inputs of one with these values, and the most of them. */
  row?(values: Values): readonly FieldOf[];
  max?: number;
  /** Default: always. A hidden field is not checked. */
  isShown?(values: Values): boolean;
  /** Stands with the other settings that few people need, behind "More settings". */
  isMore?: boolean;
  /** Returns values of other fields that follow from the choice of an option. */
  fills?(value: string, before: Values): Values;
}

/** Returns the fields that a form with these values has. */
export function shownOf(fields: readonly FieldOf[], values: Values): readonly FieldOf[] {
  return fields.filter(({ isShown }) => isShown?.(values) ?? true);
}

/** Returns the values of each row of a field. */
export function rowsIn(value: string): Values[] {
  return JSON.parse(value);
}

/** Returns what is wrong with a value before it is sent. The API checks the rest. */
export function valueProblemOf(field: FieldOf, value: string, isHalfTyped = false): string | null {
  const { kind, label, isRequired = false, min = Number.NEGATIVE_INFINITY, row } = field;
  if (row !== undefined) {
    const problemsOf = (values: Values) =>
      shownOf(row(values), values).map((input) => valueProblemOf(input, values[input.name] ?? ""));
    return (
      rowsIn(value)
        .flatMap(problemsOf)
        .find((problem) => problem !== null) ?? null
    );
  }
  if (isHalfTyped) return "Enter a date and a time, or remove what is there.";
  if (value.trim() === "") return isRequired ? `${label} is missing.` : null;
  if (kind === "moment" && momentIn(value) === null) return "Enter a date and a time.";
  if (kind !== "number") return null;
  const number = wholeNumberIn(value);
  if (number === null) return "Enter a whole number, such as 500.";
  return number < min ? `Enter a whole number of at least ${min}.` : null;
}

/** Returns a message of the API with the labels of the form in the place of the API's names. */
export function withLabels(message: string, fields: readonly FieldOf[]): string {
  // The inputs of an item are named as the parts of a list of one.
  const named = message.replace(/^(\w+)\[\d+\]\./, "$1.");
  const all = fields.flatMap((field) => [...(field.row?.({}) ?? []), field]);
  return all.reduce((text, { name, label }) => renameField(text, name, label), named);
}

/** Returns the time in UTC that a person chose; null for none. */
export function momentIn(value: string): string | null {
  const ms = Date.parse(`${value}Z`);
  return Number.isNaN(ms) ? null : new Date(ms).toISOString();
}

export interface FieldProps {
  field: FieldOf;
  value: string;
  problem: string | null;
  change(value: string): void;
}

/** Returns the values of a form that opens. */
export function initialOf(fields: readonly FieldOf[]): Values {
  return Object.fromEntries(fields.map(({ name, initial = "" }) => [name, initial]));
}
