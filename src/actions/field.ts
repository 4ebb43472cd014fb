/**
 * A field of a request: its type, its rule, and how each face shows it. The API's schema, the
 * option of the command line and the input of a form are made from it.
 *
 * Pages bundle this file, so it imports no module of the service.
 */
import type { NumberField, TextField } from "../accounts/value-rules.ts";
import { type EpochMs, momentRule } from "../units.ts";

interface FieldTexts {
  /** Label of the input in a form. Default: the name of the field. */
  label?: string;
  /** Stands below the input. */
  hint?: string;
  /** Values that a form offers in place of an input, each with its title. */
  presets?: readonly (readonly [value: string, title: string])[];
  /** Forms have an input of several lines, into which a file can be dropped. */
  isFile?: true;
  /** Value of the input when a form opens. */
  initial?: string;
  /** Whether a form with these texts has the input. Default: always. */
  isShown?(texts: Readonly<Record<string, string>>): boolean;
  /** Option of the command line with its value: `--rpm <number>`. Default: from the name. */
  option?: string;
  /** Explains the option or the argument. Default: the label. */
  about?: string;
  /** An empty text on the command line removes the setting. Default: an option `--no-...` does. */
  isRemovedByEmpty?: boolean;
}

interface ChoiceTexts {
  titles?: readonly string[];
  /** Values that are options of their own on the command line. */
  flags?: Readonly<Record<string, string>>;
}

type Kind =
  /** `check`: a rule that no pattern can have. */
  | { kind: "text"; pattern?: RegExp; check?: "id" | "overlap" | "refill period" | "timezone" }
  | { kind: "number"; min: number; max: number }
  | ({ kind: "choice"; values: readonly string[] } & ChoiceTexts)
  /**
   * A time, or a day in the time zone of the configuration, which is its end. `day`: its start.
   * `isTyped`: forms have a text and no picker.
   */
  | { kind: "moment"; day?: "start"; isTyped?: true }
  | { kind: "texts"; item: TextField; max: number; charactersMax?: number }
  | { kind: "flag" }
  | { kind: "group"; fields: Fields }
  /** Up to `max` groups. `text` is how an option and an input show them. */
  | { kind: "list"; fields: Fields; max: number; text: ListText };

/** The text of a list, for an option of the command line and an input of a form. */
export interface ListText {
  example: string;
  /** Returns the items as JSON, or null if the text is no list. */
  read(text: string): Record<string, unknown>[] | null;
  write(items: readonly unknown[]): string;
  /** Whether the parts of one item say it all. */
  isPlain(items: readonly unknown[]): boolean;
}

/** `Value` is what an action gets. */
export type Field<Value = unknown> = Kind &
  FieldTexts & {
    /** Completes "NAME must be ...". */
    rule: string;
    isOptional?: boolean;
    /** Null removes what the field sets. */
    isNullable?: boolean;
    /** For types only. */
    readonly value?: Value;
  };

/** By their names in the API. */
export type Fields = Readonly<Record<string, Field>>;

type Camel<Name extends string> = Name extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<Camel<Tail>>}`
  : Name;

/** `requests_per_minute` is `requestsPerMinute`, and `expires_at` is `expiresMs`. */
type InnerName<Name> = Name extends `${infer Head}_at`
  ? `${Camel<Head>}Ms`
  : Name extends string
    ? Camel<Name>
    : never;

type ValueOf<F> =
  F extends Field<infer Value> ? (F extends { isNullable: true } ? Value | null : Value) : never;

/** What an action gets: the values of its fields. */
export type InputOf<F extends Fields> = {
  [Name in keyof F as F[Name] extends { isOptional: true } ? never : InnerName<Name>]: ValueOf<F[Name]>;
} & {
  [Name in keyof F as F[Name] extends { isOptional: true } ? InnerName<Name> : never]?:
    | ValueOf<F[Name]>
    | undefined;
};

/** Returns the name of a field in the program. */
export function innerName(name: string): string {
  return name.replace(/_at$/, "_ms").replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

export function optional<F extends Field>(field: F): F & { isOptional: true } {
  return { ...field, isOptional: true };
}

export function nullable<F extends Field>(field: F): F & { isNullable: true } {
  return { ...field, isNullable: true };
}

export function text(
  { pattern, rule }: TextField,
  texts: FieldTexts & { rule?: string } = {},
): Field<string> {
  return { kind: "text", pattern, rule, ...texts };
}

/** An id that is stored, so it must not look like another one. */
export function idText(field: TextField, texts: FieldTexts & { rule?: string } = {}): Field<string> {
  return { ...text(field, texts), kind: "text", check: "id" };
}

/** `what`: "whole credits". */
export function number(
  { min, max }: NumberField,
  what: string,
  texts: FieldTexts & { note?: string } = {},
): Field<number> {
  const { note = "", ...rest } = texts;
  return { kind: "number", min, max, rule: `${what} from ${min} to ${max}${note}`, ...rest };
}

export function choice<const V extends readonly string[]>(
  values: V,
  texts: FieldTexts & ChoiceTexts & { rule: string },
): Field<V[number]> {
  return { kind: "choice", values, ...texts };
}

export function moment(texts: FieldTexts & { day?: "start"; isTyped?: true } = {}): Field<EpochMs> {
  const rule = texts.day === undefined ? `a time, or the last day, ${momentRule}` : momentRule;
  return { kind: "moment", rule, ...texts };
}

function flag(texts: FieldTexts = {}): Field<boolean> {
  return { kind: "flag", rule: "true or false", ...texts };
}

export function group<F extends Fields>(fields: F, texts: FieldTexts = {}): Field<InputOf<F>> {
  return { kind: "group", fields, rule: "an object", ...texts };
}

export function list<F extends Fields>(
  fields: F,
  { max, text: form, rule, ...texts }: FieldTexts & { max: number; text: ListText; rule: string },
): Field<readonly InputOf<F>[]> {
  return { kind: "list", fields, max, text: form, rule, ...texts };
}

/** The same fields, which may be absent. */
export const optionally = {
  text: withOptional(text),
  idText: withOptional(idText),
  number: withOptional(number),
  choice: withOptional(choice),
  moment: withOptional(moment),
  flag: withOptional(flag),
};

function withOptional<Given extends unknown[], F extends Field>(make: (...given: Given) => F) {
  return (...given: Given) => optional(make(...given));
}

/** Returns a part of JSON that may be no object. */
export function partOf(json: unknown, name: string): unknown {
  return typeof json === "object" && json !== null ? Reflect.get(json, name) : undefined;
}

/** Returns the fields of a list that say it all if it has one plain item: those with an option. */
export function plainParts(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([, { option }]) => option !== undefined));
}

/** Returns the items of a list, with those parts only that are not the default. */
export function shortItems({ text }: { text: ListText }, items: readonly unknown[]): readonly unknown[] {
  return text.read(text.write(items)) ?? items;
}

/**
 * Returns a message of the API about a field, with another name for the field. The messages of
 * the API begin with the path of the field, and then say what is wrong.
 */
export function renameField(message: string, path: string, name: string): string {
  return message.startsWith(`${path} `) || message.startsWith(`${path}[`)
    ? name + message.slice(path.length)
    : message;
}
