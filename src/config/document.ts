/**
 * The configuration file as written: YAML with the line of every value, `${NAME}` replaced from the environment.
 *
 * Knows nothing of which keys exist. Everything found wrong goes into one list, so that an operator is told all of
 * it at once. Values that came through `${NAME}` are never repeated in a message: they are usually secrets.
 */
import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, visit } from "yaml";

export type Environment = Readonly<Record<string, string | undefined>>;

/** One value as found: in the file, in the defaults, or in an environment variable. */
export interface Found {
  /** `inkwell.yaml:12`, or the name of an environment variable. */
  where: string;
  value: Scalar | Found[] | Map<string, Found>;
  /** True where the value came as text from the environment and its type is still to be read out of it. */
  text: boolean;
  /** As it was written, for messages. */
  shown: string;
  /** What is wrong with it is told already. */
  told?: true;
}

type Scalar = string | number | boolean | null;

/** Collects everything wrong. */
export class Problems {
  #found: { where: string; what: string }[] = [];

  add(where: string, what: string): void {
    this.#found.push({ where, what });
  }

  get count(): number {
    return this.#found.length;
  }

  /** Forgets what was added after there were `count`. */
  forgetAfter(count: number): void {
    this.#found = this.#found.slice(0, count);
  }

  /** Each once: those of the file by line, then those of variables. */
  lines(): string[] {
    const line = (where: string) => Number(/:(\d+)$/.exec(where)?.[1] ?? Number.MAX_SAFE_INTEGER);
    const sorted = this.#found.toSorted((a, b) => line(a.where) - line(b.where));
    return [...new Set(sorted.map(({ where, what }) => `${where}: ${what}`))];
  }
}

/** What the text says, and the variables that its values name. */
type ParsedYaml = Found & { value: Map<string, Found>; variables: ReadonlySet<string> };

/** Parses a YAML text into one map; an empty one where it is no YAML: what it would say is anybody's guess. */
export function parseYaml(text: string, name: string, env: Environment, problems: Problems): ParsedYaml {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const before = problems.count;
  const variables = new Set<string>();
  const empty = { where: name, value: new Map<string, Found>(), text: false, shown: "nothing", variables };
  const broken = new Set<number>();
  for (const error of document.errors) {
    const { line } = lines.linePos(error.pos[0]);
    // What else is wrong in a line follows from the first.
    if (broken.has(line)) continue;
    broken.add(line);
    const written = text.split("\n")[line - 1] ?? "";
    const hint = /[[{].*\$\{/.test(written) ? ` (inside { } or [ ] write it in quotes: "\${NAME}")` : "";
    const what =
      error.code === "DUPLICATE_KEY"
        ? `the key ${/^[^\s:]*/.exec(text.slice(error.pos[0]))?.[0]} is there twice`
        : firstLine(error.message);
    problems.add(`${name}:${line}`, `this is not valid YAML: ${what}${hint}`);
  }
  visit(document, {
    Alias(_, alias) {
      if (alias.resolve(document) !== undefined) return;
      const where = `${name}:${rangeLine(alias) ?? 1}`;
      problems.add(where, `this is not valid YAML: nothing above is called &${alias.source}`);
    },
  });
  if (problems.count > before) return empty;

  const root = found(document.contents, 1, "", []);
  if (root.value instanceof Map) return { ...root, value: root.value, variables };
  if (root.value !== null) problems.add(root.where, `found ${root.shown}, expected keys such as "listen:"`);
  return empty;

  /** `at` is the path of keys to the node, as messages name it. */
  function found(node: unknown, lineAbove: number, at: string, above: readonly unknown[]): Found {
    const target = isAlias(node) ? node.resolve(document) : node;
    const line = rangeLine(node) ?? lineAbove;
    const where = `${name}:${line}`;
    if (above.includes(target)) {
      problems.add(where, "this alias stands inside the value that it names; write the value out");
      return { where, value: null, text: false, shown: "nothing" };
    }
    const path = [...above, target];
    if (isMap(target)) {
      const entries = new Map<string, Found>();
      for (const pair of target.items) {
        const keyLine = rangeLine(pair.key) ?? line;
        const key = isScalar(pair.key) ? String(pair.key.value) : String(pair.key);
        // The line of the key is where an operator looks, also when the value begins further down.
        const value = found(pair.value, keyLine, at === "" ? key : `${at}.${key}`, path);
        entries.set(key, { ...value, where: `${name}:${keyLine}` });
      }
      return { where, value: entries, text: false, shown: "a map of keys" };
    }
    if (isSeq(target)) {
      const items = target.items.map((item, index) => found(item, line, `${at}[${index}]`, path));
      return { where, value: items, text: false, shown: "a list" };
    }
    const value = isScalar(target) ? target.value : null;
    if (typeof value === "string") return substituted(value, where, at);
    if (typeof value === "number" || typeof value === "boolean") {
      return { where, value, text: false, shown: String(value) };
    }
    return { where, value: null, text: false, shown: "nothing" };
  }

  function rangeLine(node: unknown): number | undefined {
    if (!isScalar(node) && !isMap(node) && !isSeq(node) && !isAlias(node)) return undefined;
    return node.range ? lines.linePos(node.range[0]).line : undefined;
  }

  function substituted(written: string, where: string, at: string): Found {
    const prefix = at === "" ? "" : `${at}: `;
    let fromEnvironment = false;
    const before = problems.count;
    const value = written.replace(
      /\$\$\{|\$\{([^}]*)(\}?)/g,
      (match, variable: string | undefined, end: string) => {
        if (variable === undefined) return "${";
        if (end === "" || !/^[A-Za-z_][A-Za-z0-9_]*$/.test(variable)) {
          problems.add(
            where,
            `${prefix}found ${quoted(match)}, expected \${NAME}; write $\${ for a plain \${`,
          );
          return match;
        }
        fromEnvironment = true;
        variables.add(variable);
        const replacement = env[variable];
        if (replacement === undefined) {
          problems.add(
            where,
            `${prefix}the environment variable ${variable} is not set, and ${quoted(written)} needs it`,
          );
          return match;
        }
        return replacement;
      },
    );
    const told = problems.count > before ? { told: true as const } : {};
    return { where, value, text: fromEnvironment, shown: quoted(written), ...told };
  }
}

export function quoted(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}...` : text);
}

function firstLine(message: string): string {
  return message.split("\n")[0] ?? message;
}
