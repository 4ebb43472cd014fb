/**
 * Reads the values of one section of the configuration.
 *
 * Each read names a key, its kind and its default. These reads determine the known keys and the
 * messages. A fault is collected and a stand-in is used, so that one start reports all faults.
 */
import path from "node:path";
import { withoutLogin } from "../model-files/source.ts";
import { nearest } from "../spelling.ts";
import type { Environment, Found } from "./document.ts";
import { quoteShort } from "./document.ts";
import type { Kind } from "./kinds.ts";
import type { Problems } from "./problems.ts";

export interface ReadContext {
  env: Environment;
  problems: Problems;
  /** Folders for relative paths: of the file and the defaults, and of variables. */
  folders: { file: string; variables: string };
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

/** Names may have dots. */
type Place = { names: readonly string[]; where: string };

export class Section {
  readonly #names: readonly string[];
  readonly path: string;
  readonly where: string;
  readonly #node: ReadonlyMap<string, Found>;
  readonly #context: ReadContext;
  /** Keys that have been read. */
  readonly #known = new Set<string>();

  constructor(node: ReadonlyMap<string, Found>, at: Place, context: ReadContext) {
    this.#node = node;
    this.#names = at.names;
    this.path = at.names.join(".");
    this.where = at.where;
    this.#context = context;
  }

  get env(): Environment {
    return this.#context.env;
  }

  /** Reads a variable that is not one of Inkwell's own. Null if it is not set. */
  variable<T>(name: string, kind: Kind<T>): T | null {
    const text = this.env[name];
    if (!text) return null;
    const value = kind.read(text, true);
    if (value === undefined) this.problem(name, `found ${quoteShort(text)}, expected ${kind.expects}`);
    return value ?? kind.standIn;
  }

  /** `or`: the default. Without one the value is required. */
  value<T>(key: string, kind: Kind<T>, options: { or?: NoInfer<T> } = {}): T {
    return this.placed(key, kind, options).value;
  }

  /** Null if the value is not set. */
  optional<T>(key: string, kind: Kind<T>): T | null {
    return this.optionalPlaced(key, kind)?.value ?? null;
  }

  /** A value and its place. Null if the value is not set. */
  optionalPlaced<T>(key: string, kind: Kind<T>): Placed<T> | null {
    const found = this.#find(key);
    if (found === undefined) return null;
    return { value: this.#read(found, kind, this.#name(key)), where: found.where, given: true };
  }

  placed<T>(key: string, kind: Kind<T>, options: { or?: NoInfer<T> } = {}): Placed<T> {
    const found = this.optionalPlaced(key, kind);
    if (found !== null) return found;
    if (options.or !== undefined) return { value: options.or, where: this.where, given: false };
    this.problem(this.where, `${this.#name(key)} is missing; expected ${kind.expects}`);
    return { value: kind.standIn, where: this.where, given: false };
  }

  /** Reads a list. The default is an empty list. */
  list<T>(
    key: string,
    kind: Kind<T>,
    expects: string,
    { or = [] }: { or?: NoInfer<T>[] } = {},
  ): PlacedList<T> {
    const name = this.#name(key);
    const found = this.#find(key);
    const where = found?.where ?? this.where;
    const placed = (items: Placed<T>[]): PlacedList<T> => {
      return { values: items.map(({ value }) => value), items, where, given: found !== undefined };
    };
    if (found === undefined) return placed(or.map((value) => ({ value, where, given: false })));
    const items = this.#itemsOf(found, name, expects);
    return placed(
      items.map((item, index) => {
        const value = this.#read(item, kind, `${name}[${index}]`);
        return { value, where: item.where, given: true };
      }),
    );
  }

  /** Reads a list of maps. The default is an empty list. */
  sections<T>(key: string, expects: string, read: (section: Section) => T): T[] {
    const found = this.#find(key);
    if (found === undefined) return [];
    return this.#itemsOf(found, this.#name(key), expects).map((item, index) => {
      const at = { names: [...this.#names, `${key}[${index}]`], where: item.where };
      return readAs(item, at, this.#context, read);
    });
  }

  /** Makes the path absolute. */
  resolve(found: Placed<string>): string {
    const { file, variables } = this.#context.folders;
    const isVariable = found.given && found.where.startsWith("INKWELL_");
    return path.resolve(isVariable ? variables : file, found.value);
  }

  /** Whether the file has a section under this key. */
  hasSection(key: string): boolean {
    return this.#find(key) !== undefined;
  }

  /** Reads the section under `key`. Null if the file does not have it. */
  optionalSection<T>(key: string, read: (section: Section) => T): T | null {
    return this.hasSection(key) ? this.section(key, read) : null;
  }

  /** Reads the section under `key`, and reports the keys that `read` does not know. */
  section<T>(key: string, read: (section: Section) => T): T {
    const found = this.#find(key);
    const at = { names: [...this.#names, key], where: found?.where ?? this.where };
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
      const ids = [...map.#node.keys()];
      if (ids.length === 0)
        this.problem(map.where, `${map.path} is empty; there must be at least one ${rule.what}`);
      return ids.map((id) => {
        if (!rule.pattern.test(id)) {
          const where = map.#node.get(id)?.where ?? map.where;
          this.problem(where, `${map.path}: found the name ${quoteShort(id)}, expected ${rule.says}`);
        }
        return map.section(id, (section) => read(id, section));
      });
    });
  }

  /** Accepts all other keys, because an invalid value determines which keys are known. */
  ignoreRest(): void {
    for (const key of this.#node.keys()) this.#known.add(key);
  }

  /** Reports keys that have not been read. */
  refuseUnknown(): void {
    for (const [key, found] of this.#node) {
      if (this.#known.has(key)) continue;
      const known = [...this.#known];
      const near = nearest(key, known);
      const help = near === undefined ? `the keys here are ${known.join(", ")}` : `did you mean ${near}?`;
      this.problem(found.where, `${this.#name(key)} is not known; ${help}`);
    }
  }

  problem(where: string, what: string): void {
    this.#context.problems.add(where, what);
  }

  #name(key: string): string {
    return [...this.#names, key].join(".");
  }

  #find(key: string): Found | undefined {
    this.#known.add(key);
    const found = this.#node.get(key);
    return found?.omitted ? undefined : found;
  }

  #itemsOf({ value, where, shown, told }: Found, name: string, expects: string): Found[] {
    if (Array.isArray(value)) return value;
    if (!told) this.problem(where, `${name}: found ${shown}, expected ${expects}`);
    return [];
  }

  #read<T>(found: Found, kind: Kind<T>, name: string): T {
    if (found.told) return kind.standIn;
    const value = kind.read(found.value, found.text);
    if (value !== undefined) return value;
    const shown = kind.secret ? secretShown(found) : shownWithoutLogin(found);
    this.problem(found.where, `${name}: found ${shown}, expected ${kind.expects}`);
    return kind.standIn;
  }
}

/** Reads a map of the file as a section, and reports the keys that `read` does not know. */
function readAs<T>(
  found: Found | undefined,
  at: Place,
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

/** A URL may contain a password where none is expected. */
function shownWithoutLogin({ value, shown }: Found): string {
  return typeof value === "string" && /:\/\/.*@/s.test(value) ? quoteShort(withoutLogin(value)) : shown;
}

/** Describes a value that may be a secret. */
function secretShown({ value }: Found): string {
  if (typeof value !== "string") return "a value that is not text";
  return value === "" ? "an empty text" : `a text of ${value.length} characters (not shown)`;
}
