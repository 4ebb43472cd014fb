/** A field of a form, with its label, its hint and its error. */

import { useId } from "preact/hooks";
import { renameField } from "../../actions/field.ts";
import { ModelTicks } from "./model-ticks.tsx";
import { wholeNumberIn } from "./numbers.ts";
import { Options } from "./options.tsx";

/** What was typed, by the name of the field. */
export type Values = Readonly<Record<string, string>>;

export interface FieldOf {
  /** As in the API, where it names a refused field: `spending_caps.credits`. */
  name: string;
  label: string;
  kind?: "text" | "number" | "moment" | "select" | "email" | "file" | "models";
  hint?: string;
  initial?: string;
  isRequired?: boolean;
  /** Smallest number that the field takes. */
  min?: number;
  /** Returns what is wrong with a value of the right form, or null. */
  check?(values: Values): string | null;
  /** Of a select. Of models: the only ones. */
  options?: readonly (readonly [value: string, title: string])[];
  /** Default: always. A hidden field is not checked. */
  isShown?(values: Values): boolean;
  /** Stands with the other settings that few people need, behind "More settings". */
  isMore?: boolean;
  /** Returns values of other fields that follow from the choice of an option. */
  fills?(value: string, before: Values): Values;
}

/** Returns what is wrong with a value before it is sent. The API checks the rest. */
export function valueProblemOf(field: FieldOf, value: string, isHalfTyped: boolean): string | null {
  const { kind, label, isRequired = false, min = Number.NEGATIVE_INFINITY } = field;
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
  // The inputs of a list of one are named as its parts.
  const inList = (name: string) => name.replace(".", "[0].");
  return fields.reduce(
    (text, { name, label }) => renameField(renameField(text, name, label), inList(name), label),
    message,
  );
}

/** Returns the time in UTC that a person chose; null for none. */
export function momentIn(value: string): string | null {
  const ms = Date.parse(`${value}Z`);
  return Number.isNaN(ms) ? null : new Date(ms).toISOString();
}

export function Field(props: {
  field: FieldOf;
  value: string;
  problem: string | null;
  change(value: string): void;
}) {
  const { field, value, problem, change } = props;
  const { name, label, kind = "text", hint, options = [], isRequired = false } = field;
  const id = useId();
  const shared = {
    id,
    name,
    value,
    "aria-invalid": problem !== null,
    "aria-describedby": `${id}-hint ${id}-error`,
    "aria-required": isRequired,
  };
  if (kind === "models") return <ModelTicks {...props} />;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {kind === "select" ? (
        <select {...shared} onChange={({ currentTarget }) => change(currentTarget.value)}>
          <Options of={options} />
        </select>
      ) : kind === "file" ? (
        <>
          <textarea
            {...shared}
            rows={5}
            wrap="off"
            onInput={({ currentTarget }) => change(currentTarget.value)}
          />
          <input
            type="file"
            aria-label={`File for ${label}`}
            onChange={({ currentTarget: { files } }) => void files?.[0]?.text().then(change)}
          />
        </>
      ) : kind === "moment" ? (
        <input
          {...shared}
          type="datetime-local"
          onInput={({ currentTarget }) => change(currentTarget.value)}
        />
      ) : (
        <input
          {...shared}
          type="text"
          inputMode={kind === "number" ? "numeric" : kind === "email" ? "email" : "text"}
          autocomplete="off"
          onInput={({ currentTarget }) => change(currentTarget.value)}
        />
      )}
      {hint && (
        <p id={`${id}-hint`} class="quiet">
          {hint}
        </p>
      )}
      <p id={`${id}-error`} class="error" role="alert">
        {problem}
      </p>
    </div>
  );
}
