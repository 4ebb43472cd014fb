/**
 * Parses the configuration file: YAML with the line of every value, and `${NAME}` replaced from
 * the environment. `${NAME:-default}` stands for the default if the variable is not set or empty.
 *
 * It does not know which keys exist. All faults go into one list, so that an operator sees them
 * together. Messages show `${NAME}` and never its value, which is usually a secret.
 */

import { type ErrorCode, isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, visit } from "yaml";
import { OperatorError } from "../errors.ts";
import type { Problems } from "./problems.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

/** A value of the file, of the defaults or of an environment variable. */
export interface Found {
  /** `inkwell.yaml:12` or the name of an environment variable. */
  where: string;
  value: Scalar | Found[] | Map<string, Found>;
  /** Whether the value is text from the environment, whose type is not known yet. */
  text: boolean;
  /** The value as written, for messages. */
  shown: string;
  /** Its fault has been reported. */
  told?: true;
  /** It is `${NAME:-}` without a value, which counts as not written. */
  omitted?: true;
}

/** In place of the library's words for what operators write most often. */
const faults: Partial<Record<ErrorCode, string>> = {
  TAG_RESOLVE_FAILED: "a value that begins with ! is a tag, which is not read; a text needs quotes",
  BLOCK_AS_IMPLICIT_KEY:
    "there is a second colon, or a key is indented too far; a text with a colon needs quotes",
  MULTIPLE_DOCS: "a line of --- begins a second document, and one file has one",
};

type Scalar = string | number | boolean | null;

/** The content of the file, and the variables that it names. */
type ParsedYaml = Found & { value: Map<string, Found>; variables: ReadonlySet<string> };

/**
 * Parses YAML into one map. The map is empty if the text is not valid. Throws an `OperatorError`
 * if it has too many values, or too many inside each other.
 */
export function parseYaml(text: string, name: string, env: Environment, problems: Problems): ParsedYaml {
  try {
    return parsed(text, name, env, problems);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new OperatorError(
      `${name} is not valid: too many values, or too many maps or lists inside each other. Look for aliases (*) of aliases, and inside their own anchor (&).`,
      error,
    );
  }
}

function parsed(text: string, name: string, env: Environment, problems: Problems): ParsedYaml {
  const lines = new LineCounter();
  // The library compares each key with each other.
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: false });
  const before = problems.count;
  const variables = new Set<string>();
  const empty = { where: name, value: new Map<string, Found>(), text: false, shown: "nothing", variables };
  const broken = new Set<number>();
  let values = 0;
  for (const error of [...document.errors, ...document.warnings]) {
    const { line, col } = lines.linePos(error.pos[0]);
    // Further errors in a line follow from the first.
    if (broken.has(line)) continue;
    broken.add(line);
    const [written = ""] = /.*/.exec(text.slice(error.pos[0] - col + 1)) ?? [];
    const hint = /^[^[{]*[[{].*\$\{/.test(written)
      ? ` (inside { } or [ ] write it in quotes: "\${NAME}")`
      : "";
    // After a colon the message can quote the file, and so a secret.
    const what = faults[error.code] ?? error.message.replace(/(?<=\w): .*|\n.*/s, "");
    problems.add(`${name}:${line}`, `this is not valid YAML: ${what}${hint}`);
  }
  const [anchors, targets] = [new Map<string, unknown>(), new Map<unknown, unknown>()];
  visit(document, {
    Node(_, node) {
      const fault = (at: unknown, what: string) => problems.add(`${name}:${rangeLine(at) ?? 1}`, what);
      if (isAlias(node)) targets.set(node, anchors.get(node.source));
      else if (node.anchor) anchors.set(node.anchor, node);
      if (isAlias(node) && !anchors.has(node.source))
        fault(node, "a value that begins with * is an alias, and its & is not above; a text needs quotes");
      // Names are texts: 8 and "8" are one, 2.0 and 2 are two.
      const seen = new Set<unknown>();
      for (const { key } of isMap(node) ? node.items : []) {
        if (isScalar(key) && key.source === "<<")
          fault(key, "merge keys (<<) are not read; write the settings out");
        else if (!isScalar(key)) fault(key, "a key is a map, a list or an alias; a text needs quotes");
        else if (seen.has(key.source)) fault(key, `the key ${quoteShort(key.source ?? "")} occurs twice`);
        else seen.add(key.source);
      }
    },
  });
  if (problems.count > before) return empty;

  const root = found(document.contents, 1, "");
  if (root.value instanceof Map) return { ...root, value: root.value, variables };
  if (root.value !== null) problems.add(root.where, `found ${root.shown}, expected keys such as "listen:"`);
  return empty;

  /** `at` is the path of the node for messages. */
  function found(written: unknown, lineAbove: number, at: string): Found {
    const line = rangeLine(written) ?? lineAbove;
    const where = `${name}:${line}`;
    // Aliases of aliases can make billions of values.
    values += 1;
    if (values > 100_000) throw new RangeError();
    const node = isAlias(written) ? targets.get(written) : written;
    if (isMap(node)) {
      const entries = new Map<string, Found>();
      for (const pair of node.items) {
        const keyLine = rangeLine(pair.key) ?? line;
        const key = isScalar(pair.key) ? (pair.key.source ?? "") : "";
        // Report the line of the key, even if the value starts on a later line.
        const value = found(pair.value, keyLine, at === "" ? key : `${at}.${key}`);
        entries.set(key, { ...value, where: `${name}:${keyLine}` });
      }
      return { where, value: entries, text: false, shown: "a map of keys" };
    }
    if (isSeq(node)) {
      const items = node.items.map((item, index) => found(item, line, `${at}[${index}]`));
      return { where, value: items.filter((item) => !item.omitted), text: false, shown: "a list" };
    }
    const value = isScalar(node) ? node.value : null;
    if (typeof value === "string") return substituted(value, where, at);
    if (typeof value === "number" || typeof value === "boolean")
      return { where, value, text: false, shown: String(value) };
    return { where, value: null, text: false, shown: "nothing" };
  }

  function rangeLine(node: unknown): number | undefined {
    if (!isScalar(node) && !isMap(node) && !isSeq(node) && !isAlias(node)) return undefined;
    return node.range ? lines.linePos(node.range[0]).line : undefined;
  }

  function substituted(written: string, where: string, at: string): Found {
    let fromEnvironment = false;
    const before = problems.count;
    const value = written.replace(
      /\$\$\{|\$\{([^}]*)(\}?)/g,
      (match, inside: string | undefined, end: string) => {
        if (inside === undefined) return "${";
        const fault = (what: string) => {
          problems.add(where, at === "" ? what : `${at}: ${what}`);
          return match;
        };
        const [, variable, fallback] = /^([A-Za-z_]\w*)(?::-((?:(?!\$\{).)*))?$/s.exec(inside) ?? [];
        if (end === "" || variable === undefined) {
          const expected = `\${NAME} or \${NAME:-default}, without \${ in the default`;
          return fault(`found ${quoteShort(match)}, expected ${expected}; write $\${ for a plain \${`);
        }
        fromEnvironment = true;
        variables.add(variable);
        const replacement = fallback === undefined ? env[variable] : env[variable] || fallback;
        if (replacement !== undefined) return replacement;
        return fault(`the environment variable ${variable} is not set, and \${${variable}} has no default`);
      },
    );
    const told = problems.count > before ? { told: true as const } : {};
    const omitted = value === "" && /^\$\{\w+:-\}$/.test(written) ? { omitted: true as const } : {};
    return { where, value, text: fromEnvironment, shown: quoteShort(written), ...told, ...omitted };
  }
}

export function quoteShort(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}...` : text);
}
