/**
 * Reads the values of one section of the configuration: environment variable over file over
 * default.
 *
 * Each read names a key, its kind and its default. These reads determine the known keys, the
 * environment variables and the messages. A fault is collected and a stand-in is used, so that
 * one start reports all faults.
 */
import path from "node:path";
import { withoutLogin } from "../model-files/source.ts";
import { editDistance, nearest } from "../spelling.ts";
import type { Environment, Found } from "./document.ts";
import { quoted } from "./document.ts";
import type { Kind } from "./kinds.ts";
import type { Problems } from "./problems.ts";
import { removedSetting } from "./removed.ts";

export interface ReadContext {
  env: Environment;
  problems: Problems;
  /** Folders for relative paths: of the file and the defaults, and of variables. */
  folders: { file: string; variables: string };
  /** `INKWELL_A__B` variables whose value was read, or that have been reported. */
  taken: Set<string>;
  /** All `INKWELL_A__B` variables that exist for the sections that were read. */
  known: Set<string>;
}

interface LeafOptions<T> {
  /** Name of the variable, if it does not follow from the path. */
  env?: string;
  /** Default. Without one the value is required. */
  or?: NoInfer<T>;
}

/** A value and its place, for checks of several values. */
interface Placed<T> {
  value: T;
  where: string;
  /** False for a default. */
  given: boolean;
}

/** A list and its place. `items` has the place of each item. */
interface PlacedList<T> extends Omit<Placed<T>, "value"> {
  values: T[];
  items: Placed<T>[];
}

export class Section {
  readonly path: string;
  readonly where: string;
  readonly #node: ReadonlyMap<string, Found>;
  readonly #prefix: string;
  readonly #context: ReadContext;
  /** Keys that have been read. */
  readonly #known = new Set<string>();

  /** `prefix` is the start of the section's environment variables: `INKWELL_LIMITS__`. */
  constructor(
    node: ReadonlyMap<string, Found>,
    at: { path: string; where: string; prefix: string },
    context: ReadContext,
  ) {
    this.#node = node;
    this.path = at.path;
    this.where = at.where;
    this.#prefix = at.prefix;
    this.#context = context;
  }

  get env(): Environment {
    return this.#context.env;
  }

  /** Reads a variable that is not one of Inkwell's own. Null if it is not set. */
  variable<T>(name: string, kind: Kind<T>): T | null {
    const text = this.#set(name);
    if (text === undefined) return null;
    const value = kind.read(text, true);
    if (value === undefined) this.problem(name, `found ${quoted(text)}, expected ${kind.expects}`);
    return value ?? kind.standIn;
  }

  value<T>(key: string, kind: Kind<T>, options: LeafOptions<T> = {}): T {
    return this.placed(key, kind, options).value;
  }

  /** Null if the value is not set. */
  optional<T>(key: string, kind: Kind<T>, options: { env?: string } = {}): T | null {
    const found = this.#find(key, options.env);
    return found === undefined ? null : this.#read(found, kind, this.#name(key));
  }

  /** A value and its place. Null if the value is not set. */
  optionalPlaced<T>(key: string, kind: Kind<T>): Placed<T> | null {
    const found = this.#find(key);
    if (found === undefined) return null;
    return { value: this.#read(found, kind, this.#name(key)), where: found.where, given: true };
  }

  placed<T>(key: string, kind: Kind<T>, options: LeafOptions<T> = {}): Placed<T> {
    const found = this.#find(key, options.env);
    if (found !== undefined) {
      return { value: this.#read(found, kind, this.#name(key)), where: found.where, given: true };
    }
    if (options.or !== undefined) return { value: options.or, where: this.where, given: false };
    this.problem(this.where, `${this.#name(key)} is missing; expected ${kind.expects}`);
    return { value: kind.standIn, where: this.where, given: false };
  }

  /**
   * Reads a list. In an environment variable its items are separated by commas. The default is an
   * empty list.
   */
  list<T>(
    key: string,
    kind: Kind<T>,
    expects: string,
    { or = [], env }: { or?: NoInfer<T>[]; env?: string } = {},
  ): PlacedList<T> {
    const name = this.#name(key);
    const found = this.#find(key, env);
    const where = found?.where ?? this.where;
    const placed = (items: Placed<T>[]): PlacedList<T> => {
      return { values: items.map(({ value }) => value), items, where, given: found !== undefined };
    };
    if (found === undefined) return placed(or.map((value) => ({ value, where, given: false })));
    const items = Array.isArray(found.value) ? found.value : found.text ? splitList(found) : undefined;
    if (items === undefined && found.told === undefined) {
      this.problem(where, `${name}: found ${found.shown}, expected ${expects}`);
    }
    return placed(
      (items ?? []).map((item, index) => {
        const value = this.#read(item, kind, `${name}[${index}]`);
        return { value, where: item.where, given: true };
      }),
    );
  }

  /** Reads a list of maps. Only the file has such lists. The default is an empty list. */
  sections<T>(key: string, expects: string, read: (section: Section) => T): T[] {
    this.#known.add(key);
    const found = this.#node.get(key);
    if (found === undefined || found.told) return [];
    if (!Array.isArray(found.value)) {
      this.problem(found.where, `${this.#name(key)}: found ${found.shown}, expected ${expects}`);
      return [];
    }
    const context = { ...this.#context, env: {} };
    return found.value.map((item, index) => {
      const at = { path: `${this.#name(key)}[${index}]`, where: item.where, prefix: "" };
      return readAs(item, at, context, read);
    });
  }

  /** Makes the path absolute. */
  resolve(found: Placed<string>): string {
    const { file, variables } = this.#context.folders;
    const isVariable = found.given && found.where.startsWith("INKWELL_");
    return path.resolve(isVariable ? variables : file, found.value);
  }

  /** Whether the file or the environment has a section under this key. */
  hasSection(key: string): boolean {
    this.#known.add(key);
    return (
      this.#node.has(key) || this.#variables().some((name) => name.startsWith(`${this.#variable(key)}__`))
    );
  }

  /** Reads the section under `key`. Null if neither the file nor the environment has it. */
  optionalSection<T>(key: string, read: (section: Section) => T): T | null {
    return this.hasSection(key) ? this.section(key, read) : null;
  }

  /** Reads the section under `key`, and reports the keys that `read` does not know. */
  section<T>(key: string, read: (section: Section) => T): T {
    this.#known.add(key);
    const found = this.#node.get(key);
    const prefix = `${this.#variable(key)}__`;
    const made = this.#variables().some((name) => name.startsWith(prefix)) ? `${prefix}...` : this.where;
    const at = { path: this.#name(key), where: found?.where ?? made, prefix };
    return readAs(found, at, this.#context, read);
  }

  /** Describes the keys that have been read. */
  get expected(): string {
    const known = [...this.#known].join(", ");
    const keys = this.#known.size === 1 ? "key" : "keys";
    return known === "" ? "a map of names, each with its own keys" : `a map with the ${keys} ${known}`;
  }

  /**
   * Reads the sections under `key`, whose names the operator chooses. There must be at least one.
   */
  entries<T>(
    key: string,
    rule: { what: string; pattern: RegExp; says: string },
    read: (id: string, section: Section) => T,
  ): T[] {
    return this.section(key, (map) => {
      const variablesBefore = map.#variables();
      const ids = new Map<string, string>();
      for (const id of map.#node.keys()) {
        const twin = ids.get(upperCase(id));
        if (twin !== undefined && variablesBefore.some((name) => name.startsWith(`${map.#variable(id)}__`))) {
          this.problem(
            map.where,
            `${map.#variable(id)}__... names both ${map.#name(twin)} and ${map.#name(id)}; set the value in the file`,
          );
        }
        ids.set(upperCase(id), id);
      }
      for (const name of variablesBefore) {
        const part = name.slice(map.#prefix.length).split("__")[0] ?? "";
        if (part !== "" && ![...ids.keys()].some((known) => name.startsWith(`${map.#prefix}${known}__`))) {
          ids.set(part, part.toLowerCase().replaceAll("_", "-"));
        }
      }
      const all = new Set([...map.#node.keys(), ...ids.values()]);
      if (all.size === 0)
        this.problem(map.where, `${map.path} is empty; there must be at least one ${rule.what}`);
      return [...all].map((id) => {
        if (!rule.pattern.test(id)) {
          const where = map.#node.get(id)?.where ?? map.where;
          this.problem(where, `${map.path}: found the name ${quoted(id)}, expected ${rule.says}`);
        }
        return map.section(id, (section) => read(id, section));
      });
    });
  }

  /** Accepts all other keys, because an invalid value determines which keys are known. */
  ignoreRest(): void {
    for (const key of this.#node.keys()) this.#known.add(key);
    for (const name of this.#variables()) this.#context.taken.add(name);
  }

  /** Reports keys that have not been read. */
  refuseUnknown(): void {
    for (const [key, found] of this.#node) {
      if (this.#known.has(key)) continue;
      const known = [...this.#known];
      const removed = removedSetting(this.#name(key));
      if (removed !== undefined) {
        this.problem(found.where, `${this.#name(key)} was removed; ${removed}`);
        continue;
      }
      const near = nearest(key, known);
      const help = near === undefined ? `the keys here are ${known.join(", ")}` : `did you mean ${near}?`;
      this.problem(found.where, `${this.#name(key)} is not known; ${help}`);
    }
  }

  problem(where: string, what: string): void {
    this.#context.problems.add(where, what);
  }

  #name(key: string): string {
    return this.path === "" ? key : `${this.path}.${key}`;
  }

  #variable(key: string): string {
    return `${this.#prefix}${upperCase(key)}`;
  }

  #variables(): string[] {
    return Object.keys(this.#context.env).filter(
      (name) => name.startsWith(this.#prefix) && this.#set(name) !== undefined,
    );
  }

  /** An empty variable counts as not set: compose files and shells create such variables. */
  #set(variable: string): string | undefined {
    const value = this.#context.env[variable];
    return value === "" ? undefined : value;
  }

  #find(key: string, alias?: string): Found | undefined {
    this.#known.add(key);
    const { known, taken } = this.#context;
    const systematic = this.#variable(key);
    if (alias !== undefined && systematic.includes("__") && this.#set(systematic) !== undefined) {
      taken.add(systematic);
      this.problem(systematic, `${this.#name(key)} is set by ${alias}; use that name`);
    }
    const variable = alias ?? systematic;
    known.add(variable);
    const value = this.#set(variable);
    if (value === undefined) return this.#node.get(key);
    taken.add(variable);
    return { where: variable, value, text: true, shown: quoted(value) };
  }

  #read<T>(found: Found, kind: Kind<T>, name: string): T {
    if (found.told) return kind.standIn;
    const value = kind.read(found.value, found.text);
    if (value !== undefined) return value;
    const shown = kind.secret ? secretShown(found) : shownWithoutLogin(found);
    this.problem(found.where, `${name}: found ${shown}, expected ${kind.expects}${serviceLink(found)}`);
    return kind.standIn;
  }
}

/** Reads a map of the file as a section, and reports the keys that `read` does not know. */
function readAs<T>(
  found: Found | undefined,
  at: { path: string; where: string; prefix: string },
  context: ReadContext,
  read: (section: Section) => T,
): T {
  const { problems } = context;
  const section = new Section(found?.value instanceof Map ? found.value : new Map(), at, context);
  const before = problems.count;
  const result = read(section);
  if (found === undefined || found.value === null || found.value instanceof Map) {
    section.refuseUnknown();
    return result;
  }
  // The section has the wrong type, so its missing keys are not worth a message.
  problems.forgetAfter(before);
  if (!found.told) {
    section.problem(found.where, `${section.path}: found ${found.shown}, expected ${section.expected}`);
  }
  return result;
}

/**
 * Reports every unknown `INKWELL_A__B` variable. A variable without `__` may belong to another
 * program (`INKWELL_SERVICE_HOST`, `INKWELL_DB_PASSWORD`), so it is reported only if it looks
 * like a misspelled known one. `own` has further known names.
 */
export function refuseUnknownVariables(
  { env, problems, taken, known }: ReadContext,
  own: ReadonlySet<string>,
): void {
  const all = [...known, ...own];
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith("INKWELL_") || value === undefined || value === "") continue;
    if (taken.has(name) || own.has(name) || known.has(name)) continue;
    const near = name.includes("__") ? nearest(name, all) : all.find((each) => isMisspelled(name, each));
    if (near === undefined && !name.includes("__")) continue;
    const help =
      near === undefined
        ? "separate the parts of a path by two underscores, as in INKWELL_LIMITS__QUEUE"
        : `did you mean ${near}?`;
    problems.add(name, `no setting has this name; ${help}`);
  }
}

/** Whether one letter differs, or single underscores stand for double ones. */
function isMisspelled(name: string, meant: string): boolean {
  return meant.replaceAll("__", "_") === name || editDistance(name, meant) === 1;
}

/** Returns the form of a key in the name of a variable: `SMOLLM2_135M`. */
function upperCase(key: string): string {
  return key.toUpperCase().replace(/[^A-Z0-9]/g, "_");
}

function splitList(found: Found): Found[] {
  const items = String(found.value)
    .split(",")
    .map((item) => item.trim());
  return items.filter((item) => item !== "").map((item) => ({ ...found, value: item, shown: quoted(item) }));
}

/** A URL may contain a password where none is expected. */
function shownWithoutLogin({ value, shown }: Found): string {
  return typeof value === "string" && /:\/\/.*@/s.test(value) ? quoted(withoutLogin(value)) : shown;
}

/** Describes a value that may be a secret. */
function secretShown({ value }: Found): string {
  if (typeof value !== "string") return "a value that is not text";
  return value === "" ? "an empty text" : `a text of ${value.length} characters (not shown)`;
}

/**
 * Explains a value of a Kubernetes variable that came through `${NAME}`. Others are ignored by
 * service-links.ts.
 */
function serviceLink({ text, value }: Found): string {
  const isLink = text && /^(tcp|udp|sctp):\/\//.test(String(value));
  return isLink
    ? " (Kubernetes sets variables of this form for Services; set enableServiceLinks: false, or use another name)"
    : "";
}
