/**
 * Reads one section of the configuration: environment over file over default, each value described where it is read.
 *
 * Every read names its key, its kind and its default once; from these reads follow which keys are known, which
 * environment variables exist, and every message. A section collects what is wrong and goes on with stand-ins, so
 * that one start tells an operator everything. It decides nothing about what the values mean.
 */
import path from "node:path";
import { editDistance, nearest } from "../spelling.ts";
import type { Environment, Found, Problems } from "./document.ts";
import { quoted } from "./document.ts";
import type { Kind } from "./kinds.ts";

export interface ReadContext {
  env: Environment;
  problems: Problems;
  /** Where relative paths start: those of the file (and the default ones), and those of variables. */
  folders: { file: string; variables: string };
  /** `INKWELL_A__B` variables that a value was read from, or that were already complained about. */
  taken: Set<string>;
  /** Every `INKWELL_A__B` variable that would have been read. */
  known: Set<string>;
}

export interface LeafOptions<T> {
  /** The variable's name where it is not the one that follows from the path. */
  env?: string;
  /** Taken where neither environment nor file has the value; absent: the value is required. */
  or?: NoInfer<T>;
  /** Said when a required value is missing. */
  missing?: string;
}

/** A value together with where it was found, for checks that need more than one value. */
export interface Placed<T> {
  value: T;
  where: string;
  /** False: the default stands in. */
  given: boolean;
}

export class Section {
  readonly path: string;
  readonly where: string;
  readonly #node: ReadonlyMap<string, Found>;
  readonly #prefix: string;
  readonly #context: ReadContext;
  readonly #asked = new Set<string>();

  /** `prefix` is what the section's environment variables begin with: `INKWELL_LIMITS__`. */
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

  value<T>(key: string, kind: Kind<T>, options: LeafOptions<T> = {}): T {
    return this.placed(key, kind, options).value;
  }

  /** Null where the value is given nowhere. */
  optional<T>(key: string, kind: Kind<T>, options: { env?: string } = {}): T | null {
    const found = this.#find(key, options.env);
    return found === undefined ? null : this.#read(found, kind, this.#name(key));
  }

  placed<T>(key: string, kind: Kind<T>, options: LeafOptions<T> = {}): Placed<T> {
    const found = this.#find(key, options.env);
    if (found !== undefined) {
      return { value: this.#read(found, kind, this.#name(key)), where: found.where, given: true };
    }
    if (options.or !== undefined) return { value: options.or, where: this.where, given: false };
    this.problem(
      this.where,
      `${this.#name(key)} is missing; ${options.missing ?? `expected ${kind.expects}`}`,
    );
    return { value: kind.standIn, where: this.where, given: false };
  }

  /** A list; in an environment variable its items are separated by commas. */
  list<T>(
    key: string,
    kind: Kind<T>,
    options: { or: T[]; expects: string; env?: string },
  ): Placed<Placed<T>[]> {
    const found = this.#find(key, options.env);
    const name = this.#name(key);
    if (found === undefined) {
      const value = options.or.map((item) => ({ value: item, where: this.where, given: false }));
      return { value, where: this.where, given: false };
    }
    const items = Array.isArray(found.value) ? found.value : found.text ? splitList(found) : undefined;
    if (items === undefined) {
      if (found.told === undefined)
        this.problem(found.where, `${name}: found ${found.shown}, expected ${options.expects}`);
      return { value: [], where: found.where, given: true };
    }
    const value = items.map((item, index) => ({
      value: this.#read(item, kind, `${name}[${index}]`),
      where: item.where,
      given: true,
    }));
    return { value, where: found.where, given: true };
  }

  /** The path as an absolute one. */
  resolve(found: Placed<string>): string {
    const { file, variables } = this.#context.folders;
    const isVariable = found.given && found.where.startsWith("INKWELL_");
    return path.resolve(isVariable ? variables : file, found.value);
  }

  /** Whether the file or the environment says anything in the section under this key. */
  hasSection(key: string): boolean {
    this.#asked.add(key);
    return (
      this.#node.has(key) || this.#variables().some((name) => name.startsWith(`${this.#variable(key)}__`))
    );
  }

  /** Reads the section under `key` with `read`, and complains about what `read` did not ask for. */
  section<T>(key: string, read: (section: Section) => T): T {
    this.#asked.add(key);
    const found = this.#node.get(key);
    const { problems } = this.#context;
    const isMap = found === undefined || found.value === null || found.value instanceof Map;
    const prefix = `${this.#variable(key)}__`;
    const made = this.#variables().some((name) => name.startsWith(prefix)) ? `${prefix}...` : this.where;
    const section = new Section(
      found?.value instanceof Map ? found.value : new Map(),
      { path: this.#name(key), where: found?.where ?? made, prefix },
      this.#context,
    );
    const before = problems.count;
    const result = read(section);
    if (isMap) {
      section.refuseUnknown();
    } else {
      // What is missing inside is no news: the whole is of the wrong shape.
      problems.forgetAfter(before);
      if (found.told) return result;
      const known = [...section.#asked].join(", ");
      const keys = section.#asked.size === 1 ? "key" : "keys";
      const expected =
        known === "" ? "a map of names, each with its own keys" : `a map with the ${keys} ${known}`;
      this.problem(found.where, `${section.path}: found ${found.shown}, expected ${expected}`);
    }
    return result;
  }

  /** Every section under `key`, whose keys the operator chooses: at least one. `key` itself is asked of `this`. */
  entries<T>(
    key: string,
    rule: { what: string; pattern: RegExp; says: string },
    read: (id: string, section: Section) => T,
  ): T[] {
    return this.section(key, (map) => {
      const variablesBefore = map.#variables();
      const ids = new Map<string, string>();
      for (const id of map.#node.keys()) {
        const twin = ids.get(shout(id));
        if (twin !== undefined && variablesBefore.some((name) => name.startsWith(`${map.#variable(id)}__`))) {
          this.problem(
            map.where,
            `${map.#variable(id)}__... names both ${map.#name(twin)} and ${map.#name(id)}; set the value in the file`,
          );
        }
        ids.set(shout(id), id);
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

  /** Says nothing of what was not asked for: what should be there hangs on a value that is wrong itself. */
  passOver(): void {
    for (const key of this.#node.keys()) this.#asked.add(key);
    for (const name of this.#variables()) this.#context.taken.add(name);
  }

  /** Complains about the keys that nothing has asked for. */
  refuseUnknown(): void {
    for (const [key, found] of this.#node) {
      if (this.#asked.has(key)) continue;
      const known = [...this.#asked];
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
    return `${this.#prefix}${shout(key)}`;
  }

  #variables(): string[] {
    return Object.keys(this.#context.env).filter(
      (name) => name.startsWith(this.#prefix) && this.#set(name) !== undefined,
    );
  }

  /** A variable that is set to nothing counts as not set: compose files and shells make such ones. */
  #set(variable: string): string | undefined {
    const value = this.#context.env[variable];
    return value === "" ? undefined : value;
  }

  #find(key: string, alias?: string): Found | undefined {
    this.#asked.add(key);
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
    const shown = kind.secret ? secretly(found) : found.shown;
    this.problem(found.where, `${name}: found ${shown}, expected ${kind.expects}${serviceLink(found)}`);
    return kind.standIn;
  }
}

/**
 * Complains about every `INKWELL_A__B` variable that no value was read from. Without a path in its name a variable may
 * be somebody else's (`INKWELL_SERVICE_HOST`, `INKWELL_DB_PASSWORD`), so only one that is a slip of the pen away from a
 * known one is refused. `own` are names that are known to be meant.
 */
export function refuseUnknownVariables(
  { env, problems, taken, known }: ReadContext,
  own: ReadonlySet<string>,
): void {
  const all = [...known, ...own];
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith("INKWELL_") || value === undefined || value === "") continue;
    if (taken.has(name) || own.has(name) || known.has(name)) continue;
    const near = name.includes("__") ? nearest(name, all) : all.find((each) => isSlip(name, each));
    if (near === undefined && !name.includes("__")) continue;
    const help =
      near === undefined
        ? "the path of a value has two underscores between its parts, as in INKWELL_LIMITS__QUEUE"
        : `did you mean ${near}?`;
    problems.add(name, `this variable names no value of the configuration; ${help}`);
  }
}

/** One letter off, or with fewer underscores than there should be. */
function isSlip(name: string, meant: string): boolean {
  return meant.replaceAll("__", "_") === name || editDistance(name, meant) === 1;
}

/** `smollm2-135m` in the name of a variable. */
function shout(key: string): string {
  return key.toUpperCase().replace(/[^A-Z0-9]/g, "_");
}

function splitList(found: Found): Found[] {
  const items = String(found.value)
    .split(",")
    .map((item) => item.trim());
  return items.filter((item) => item !== "").map((item) => ({ ...found, value: item, shown: quoted(item) }));
}

/** As much as may be said of a value that may be a secret. */
function secretly({ value }: Found): string {
  if (typeof value !== "string") return "what is no text";
  return value === "" ? "an empty text" : `a text of ${value.length} characters (not shown)`;
}

/** A value of this form came from such a variable through `${NAME}`; config/service-links.ts has dropped the others. */
function serviceLink({ text, value }: Found): string {
  const isLink = text && /^(tcp|udp|sctp):\/\//.test(String(value));
  return isLink
    ? " (Kubernetes sets variables of this form for Services; set enableServiceLinks: false, or use another name)"
    : "";
}
