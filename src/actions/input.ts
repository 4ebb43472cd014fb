/**
 * Reads the input of an action: its TypeBox schemas, which the API's document has too, and the
 * values that the action gets.
 */
import Type, { type TSchema } from "typebox";
import { closed, orNull } from "../accounts/json-objects.ts";
import { invalidValue, momentNamed } from "../accounts/refusals.ts";
import { fieldOf, isRecord } from "../objects.ts";
import { type Field, type Fields, type InputOf, innerName } from "./field.ts";
import { textProblem } from "./value-problem.ts";

/** Returns the schemas of fields, some of them. */
export function propertiesOf(fields: Fields, names = Object.keys(fields)): Record<string, TSchema> {
  const shown = names.map((name) => {
    const field = fields[name];
    return field === undefined ? [] : [[name, schemaOf(field)] as const];
  });
  return Object.fromEntries(shown.flat());
}

function schemaOf(field: Field): TSchema {
  const { isNullable = false, isOptional = false } = field;
  const schema = isNullable ? orNull(valueSchema(field)) : valueSchema(field);
  return isOptional ? Type.Optional(schema) : schema;
}

function valueSchema(field: Field): TSchema {
  const { rule: description } = field;
  switch (field.kind) {
    case "text":
      return Type.String(
        field.pattern === undefined ? { description } : { pattern: field.pattern.source, description },
      );
    case "number":
      return Type.Integer({ minimum: field.min, maximum: field.max, description });
    case "choice":
      return Type.Enum([...field.values], { description });
    case "moment":
      return Type.String({ description });
    case "texts": {
      const { pattern, rule } = field.item;
      const item = Type.String({ pattern: pattern.source, description: rule });
      return Type.Array(item, { minItems: 1, maxItems: field.max, description });
    }
    case "flag":
      return Type.Boolean({ description });
    case "group":
      return closed(propertiesOf(field.fields));
    case "list":
      return Type.Array(closed(propertiesOf(field.fields)), { maxItems: field.max, description });
  }
}

/**
 * Returns the values of a JSON object that fits the schemas. Throws an `invalid_value` that names
 * the field if a value breaks a rule that no schema can have.
 */
export function inputOf<F extends Fields>(fields: F, json: unknown, timezone: string, path = ""): InputOf<F> {
  const values = Object.entries(fields).map(([name, field]) => [
    innerName(name),
    valueIn(field, fieldOf(json, name), timezone, path + name),
  ]);
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}

function valueIn(field: Field, value: unknown, timezone: string, param: string): unknown {
  if (typeof value === "string" && field.kind === "moment") {
    return momentNamed(param, value, timezone, field.day === "start" ? 0 : 1);
  }
  if (typeof value === "string" && field.kind === "text") {
    const problem = textProblem(field.check, value);
    if (problem !== null) throw invalidValue(param, `${param} ${problem}`);
  }
  if (field.kind === "list" && Array.isArray(value))
    return value.map((item, n) => inputOf(field.fields, item, timezone, `${param}[${n}].`));
  if (field.kind === "texts" && Array.isArray(value)) {
    const { charactersMax = Number.POSITIVE_INFINITY, rule } = field;
    if (value.join("").length > charactersMax) throw invalidValue(param, `${param} must be ${rule}.`);
    return [...new Set(value)];
  }
  if (field.kind === "group" && isRecord(value)) return inputOf(field.fields, value, timezone, `${param}.`);
  return value;
}
