/**
 * Inputs of a form, made from the fields of an action, and the JSON that their texts stand for.
 * The parts of a group are inputs of their own, and so are those of a list of one:
 * `spending_caps.credits`.
 */
import { type Field, type Fields, partOf, plainParts, shortItems } from "../../actions/field.ts";
import { type FieldOf, initialOf, momentIn, rowsIn, type Values } from "./form-fields.ts";
import { wholeNumberIn } from "./numbers.ts";

/** `before`: the present values, as JSON. `isItem`: of an item of a list, which must be whole. */
export function inputsOf(fields: Fields, before: unknown = {}, path = "", isItem = false): FieldOf[] {
  return Object.entries(fields).flatMap(([part, field]): FieldOf[] => {
    const name = path + part;
    const value = partOf(before, part);
    if (field.kind === "group") return inputsOf(field.fields, value, `${name}.`);
    const items = Array.isArray(value) ? value : [];
    if (field.kind === "list" && field.text.isPlain(items)) {
      return inputsOf(plainParts(field.fields), items[0], `${name}.`);
    }
    const { label = part.replaceAll("_", " "), hint, isShown } = field;
    const row = field.kind === "list" && ((item: unknown) => inputsOf(field.fields, item, `${name}.`, true));
    const text = row
      ? JSON.stringify(shortItems(field, items).map((item) => initialOf(row(item))))
      : textOf(field, value);
    const options = optionsOf(field, text)?.filter(([each]) => !isItem || each !== "");
    const isNeeded = (path === "" || isItem) && mustBeSet(field);
    return [
      {
        name,
        label,
        initial: text === "" && isItem ? (options?.[0]?.[0] ?? "") : text,
        kind: kindOf(part, field),
        isRequired: options === undefined ? isNeeded : !options.some(([value]) => value === ""),
        ...(hint !== undefined && { hint }),
        ...(field.kind === "number" && {
          min: Math.max(field.min, path === "spending_caps." ? 1 : field.min),
        }),
        ...(options !== undefined && { options }),
        ...(isShown !== undefined && { isShown: (values: Values) => isShown(values) }),
        ...(row && {
          row: (values: Values) => row(jsonIn(field.fields, values, `${name}.`)),
          max: field.max,
        }),
      },
    ];
  });
}

/** Returns inputs of which one is a choice among options that the page knows. */
export function withOptions(
  inputs: readonly FieldOf[],
  name: string,
  options: NonNullable<FieldOf["options"]>,
): FieldOf[] {
  return inputs.map((input) => (input.name === name ? { ...input, kind: "select", options } : input));
}

/** Returns the values as the API takes them. An empty input is null. */
export function jsonIn(fields: Fields, values: Values, path = ""): Record<string, unknown> {
  const parts = Object.entries(fields).map(([part, field]) => [part, valueIn(field, values, path + part)]);
  return Object.fromEntries(parts);
}

export function withoutNulls(json: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(json).filter(([, value]) => value !== null));
}

function valueIn(field: Field, values: Values, name: string): unknown {
  if (field.kind === "group") {
    const parts = withoutNulls(jsonIn(field.fields, values, `${name}.`));
    const isSet = Object.entries(parts).some(([part]) => field.fields[part]?.kind !== "choice");
    return isSet ? parts : null;
  }
  if (field.kind === "list") {
    const itemOf = (row: Values) => withoutNulls(jsonIn(field.fields, row, `${name}.`));
    if (name in values) return shortItems(field, rowsIn(values[name] ?? "[]").map(itemOf));
    const one = valueIn({ ...field, kind: "group", fields: plainParts(field.fields) }, values, name);
    return one === null ? [] : [one];
  }
  const isHidden = field.isShown?.(values) === false;
  // A hidden choice has its first value.
  if (isHidden) return field.kind === "choice" ? field.values[0] : null;
  const typed = values[name] ?? "";
  // The last cells of a line may be empty.
  const text = field.isFile ? typed : typed.trim();
  switch (field.kind) {
    case "number":
      return wholeNumberIn(text);
    case "moment":
      return field.isTyped ? text || null : momentIn(text);
    case "texts": {
      const items = text.split(",").map((item) => item.trim());
      const named = items.filter((item) => item !== "");
      return named.length === 0 ? ["*"] : named;
    }
    default:
      return text || null;
  }
}

function mustBeSet({ kind, isOptional = false, isNullable = false }: Field): boolean {
  return !isNullable && !isOptional && kind !== "texts";
}

function kindOf(name: string, field: Field): NonNullable<FieldOf["kind"]> {
  if (field.kind === "choice" || field.presets !== undefined) return "select";
  if (field.kind === "number") return "number";
  if (field.kind === "moment" && !field.isTyped) return "moment";
  if (field.isFile) return "file";
  if (field.kind === "texts") return "models";
  if (field.kind === "list") return "rows";
  return name === "email" ? "email" : "text";
}

/** Returns the text of an input with this value. */
function textOf(field: Field, value: unknown): string {
  if (value === undefined || value === null)
    return field.initial ?? (field.kind === "choice" ? (field.values[0] ?? "") : "");
  if (field.kind === "moment") return String(value).slice(0, 16);
  // An empty input stands for all of them.
  return Array.isArray(value) ? value.filter((item) => item !== "*").join(", ") : String(value);
}

/** Unusual values are offered as they are. */
function optionsOf(field: Field, initial: string): FieldOf["options"] {
  const { presets } = field;
  if (field.kind === "choice") {
    return field.values.map((value, n) => [value, field.titles?.[n] ?? value] as const);
  }
  if (presets === undefined || presets.some(([value]) => value === initial)) return presets;
  return [...presets, [initial, initial]];
}
