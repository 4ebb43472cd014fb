/**
 * Explains why a schema refuses a value. Returns the first fault as a `Refusal` that names the
 * field, the value and the valid values. Runs only after the compiled check has failed. In an
 * array it explains the first invalid item; the items before it are only checked, by compiled
 * code.
 *
 * The texts come from the schema: the `description` of a field completes the sentence "<field>
 * must be ...", and its `hint` says what to do. Only the keywords that our schemas use are
 * supported. The recursion follows the depth of the schema, never the depth of the body.
 */
import Type, { type TProperties, type TSchema } from "typebox";
import { Compile, type Validator } from "typebox/schema";
import { type CallerCode, Refusal } from "../../errors.ts";
import { fieldOf, isRecord } from "../../objects.ts";

/** Longest text of the caller that a message or `param` repeats. */
const quotedCharactersMax = 64;

/**
 * Returns the first fault of `value`, or null if it is valid. `path` is `""` for the body itself.
 */
export function explain(schema: TSchema, value: unknown, path: string): Refusal | null {
  if (Type.IsUnion(schema)) {
    const branch = schema.anyOf.find((candidate) => hasType(candidate, value));
    return branch === undefined
      ? wrongValue(schema, value, path, "invalid_type")
      : explain(branch, value, path);
  }
  if (!hasType(schema, value)) return wrongValue(schema, value, path, "invalid_type");
  if (Type.IsObject(schema) && isRecord(value)) return explainObject(schema, value, path);
  if (Type.IsArray(schema) && Array.isArray(value)) {
    const least = Number(fieldOf(schema, "minItems") ?? 0);
    const most = Number(fieldOf(schema, "maxItems") ?? Number.POSITIVE_INFINITY);
    if (value.length < least || value.length > most) return wrongValue(schema, value, path);
    const items = validatorOf(schema.items);
    const index = value.findIndex((item) => !items.Check(item));
    return index < 0 ? null : explain(schema.items, value[index], `${path}[${index}]`);
  }
  return validatorOf(schema).Check(value) ? null : wrongValue(schema, value, path);
}

/** Compiled schemas. Schemas are constants of the program, so their number is bounded. */
const validators = new WeakMap<TSchema, Validator>();

function validatorOf(schema: TSchema): Validator {
  return validators.getOrInsertComputed(schema, () => Compile(schema));
}

function explainObject(
  schema: TSchema & { properties: TProperties; required?: readonly string[] },
  value: Record<string, unknown>,
  path: string,
): Refusal | null {
  const prefix = path === "" ? "" : `${path}.`;
  for (const [key, property] of Object.entries(schema.properties)) {
    const name = prefix + key;
    if (Object.hasOwn(value, key)) {
      const fault = Type.IsNull(property)
        ? value[key] === null
          ? null
          : unknownKey(schema, path, key)
        : explain(property, value[key], name);
      if (fault !== null) return fault;
    } else if (schema.required?.includes(key)) {
      const message = `${name} is missing: it must be ${rightFor(property)}.`;
      return new Refusal("missing_required_parameter", message, { param: name });
    }
  }
  if ("additionalProperties" in schema && schema.additionalProperties === false) {
    const unknown = Object.keys(value).find((key) => !Object.hasOwn(schema.properties, key));
    if (unknown !== undefined) return unknownKey(schema, path, unknown);
  }
  return null;
}

function unknownKey(schema: TSchema, path: string, key: string): Refusal {
  const shown = cut(key);
  const name = path === "" ? shown : `${path}.${shown}`;
  return new Refusal(
    "unknown_parameter",
    `${name} is not accepted: ${path === "" ? "this" : path} must be ${rightFor(schema)}. Remove ${shown}.`,
    { param: name },
  );
}

function wrongValue(
  schema: TSchema,
  value: unknown,
  path: string,
  code: CallerCode = "invalid_value",
): Refusal {
  const hint = fieldOf(schema, "hint");
  const message = `${path === "" ? "The body" : path} must be ${rightFor(schema)}, not ${shownAs(value)}.${hint === undefined ? "" : ` ${hint}`}`;
  return new Refusal(code, message, path === "" ? {} : { param: path });
}

function rightFor(schema: TSchema): string {
  return String(fieldOf(schema, "description") ?? "something else");
}

function hasType(schema: TSchema, value: unknown): boolean {
  if (Type.IsUnion(schema)) return schema.anyOf.some((branch) => hasType(branch, value));
  if (Type.IsNull(schema)) return value === null;
  if (Type.IsBoolean(schema)) return typeof value === "boolean";
  if (Type.IsNumber(schema)) return typeof value === "number";
  if (Type.IsInteger(schema)) return Number.isInteger(value);
  if (Type.IsArray(schema)) return Array.isArray(value);
  if (Type.IsObject(schema)) return isRecord(value);
  return typeof value === "string";
}

/** Returns a short description of a value: the value itself if it is short, otherwise its kind. */
function shownAs(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? "an empty array" : `an array of ${value.length}`;
  if (typeof value === "object" && value !== null) return "an object";
  if (typeof value === "string")
    return value === "" ? "an empty string" : `the string ${JSON.stringify(cut(value))}`;
  return String(value);
}

function cut(text: string): string {
  const wellFormed = text.slice(0, quotedCharactersMax).toWellFormed();
  return text.length > quotedCharactersMax ? `${wellFormed}...` : wellFormed;
}
