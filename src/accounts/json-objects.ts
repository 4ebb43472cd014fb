/**
 * JSON objects with their schemas. Each field has its schema and its value in one place, and
 * schemas with a name become components of the OpenAPI document.
 */
import Type, { type Static, type TObject, type TProperties, type TSchema } from "typebox";
import { invariant } from "../errors.ts";
import type { EpochMs } from "../units.ts";
import { allOf, planLimits } from "./plan-limits.ts";

export const time = Type.String({ format: "date-time", description: "a time" });
export const count = Type.Integer({ minimum: 0 });
export const micro = Type.Integer({ minimum: 0, description: "micro-credits" });
export const text = Type.String();

/** For each field, its schema and its value. */
type Fields<Row, P extends TProperties> = {
  [Name in keyof P]: readonly [schema: P[Name], read: (row: Row) => Static<P[Name]>];
};

/** An object's schema, and the function that makes the object of a row. */
interface JsonObject<Row, P extends TProperties> {
  schema: TObject<P>;
  of(row: Row): { [Name in keyof P]: Static<P[Name]> };
}

/** Fixes the type of the row; the types of the fields are inferred. */
export function fieldsFor<Row>() {
  return <P extends TProperties>(fields: Fields<Row, P>) => fields;
}

/** Schemas that the OpenAPI documents contain once, under these names. */
export const components = new Map<object, string>();

/** Throws if another schema has the name, because a document would describe one of them only. */
export function component<P extends TProperties>(name: string, properties: P) {
  invariant(![...components.values()].includes(name), `two components are called ${name}`);
  const schema = closed(properties);
  components.set(schema, name);
  return schema;
}

export function objectFor<Row>(name: string) {
  return <P extends TProperties>(fields: Fields<Row, P>): JsonObject<Row, P> => {
    const entries = Object.entries(fields);
    const schemas = entries.map(([field, [schema]]) => [field, schema]);
    return {
      schema: component(name, Object.fromEntries(schemas)),
      of: (row) => {
        const values = entries.map(([name, [, read]]) => [name, read(row)]);
        return Object.fromEntries(values);
      },
    };
  };
}

/** Returns the schema of an object with exactly these fields. */
export function closed<P extends TProperties>(properties: P) {
  const names = Object.keys(properties);
  return Type.Object(properties, {
    additionalProperties: false,
    description: names.length === 0 ? "without fields" : `an object with ${enumerated(names)} only`,
  });
}

function enumerated(names: readonly string[]): string {
  return names.length < 2 ? names.join() : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

export function orNull<S extends TSchema>(schema: S) {
  return Type.Union([schema, Type.Null()], { description: `${descriptionOf(schema)}, or null` });
}

function descriptionOf(schema: TSchema): string {
  return "description" in schema && typeof schema.description === "string" ? schema.description : "a value";
}

/** The limits of a plan or a key. Null means no limit. */
export const limitsSchema = closed(allOf(planLimits, () => orNull(count)));

export function isoTime(ms: EpochMs): string {
  return new Date(ms).toISOString();
}

export function isoTimeOrNull(ms: EpochMs | null): string | null {
  return ms === null ? null : isoTime(ms);
}

const values = Type.Record(Type.String(), Type.Unknown(), {
  description: "an object of values by their names",
});

/** The values of a recorded change, which are JSON in its row. */
export const valueFields = fieldsFor<Record<"before" | "after" | "outcome", string | null>>()({
  before: [orNull(values), (row) => valuesIn(row.before)],
  after: [orNull(values), (row) => valuesIn(row.after)],
  outcome: [orNull(values), (row) => valuesIn(row.outcome)],
});

function valuesIn(text: string | null): Record<string, unknown> | null {
  return text === null ? null : JSON.parse(text);
}
