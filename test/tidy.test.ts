/** The rules of the house that a machine can keep. Each names what to do when it is broken. */
import assert from "node:assert/strict";
import { existsSync, globSync, readdirSync, readFileSync, statSync } from "node:fs";
import { basename, dirname, join, normalize, relative } from "node:path";
import { test } from "node:test";
import { catalogue, type Entry } from "../src/errors.ts";
import { foldedInvariants } from "../src/ledger/account-fold.ts";
import { articleOf } from "../tools/docs/markdown.ts";

const root = join(import.meta.dirname, "..");

/**
 * Modules of src/: a file belongs to the longest name that its path starts with, and imports only
 * from modules above its own.
 */
const modules = [
  "errors",
  "units",
  "objects",
  "actors",
  "retry",
  "collections",
  "heap",
  "json-size",
  "spelling",
  "visible-text",
  "percent-encoding",
  "shell",
  "job",
  "jobs",
  "make-folder",
  "secret-file",
  "invocation",
  "operator-address",
  "outgoing",
  "peers",
  "version",
  "limits",
  "threads",
  "ledger",
  "store",
  "accounts",
  "sign-in",
  "actions",
  "chat",
  "model-files",
  "engines",
  "config",
  "telemetry",
  "events",
  "http/openai-format",
  "http",
  "http/api",
  "http/public",
  "http/admin",
  "http/portal",
  "app",
  "cli",
  "web",
];

/**
 * Parts of the embedded engine, and the parts that each may import. The service loads `process`,
 * the child the others.
 */
const llamaImports: Readonly<Record<string, readonly string[]>> = {
  protocol: [],
  process: ["protocol", "process"],
  prompt: ["protocol", "prompt"],
  decode: ["protocol", "prompt", "decode"],
  child: ["protocol", "prompt", "decode"],
};

/** Only the composition root (and tests, benches) may name these. */
const adapters = [
  /^src\/store\/sqlite\//,
  /^src\/store\/postgres\//,
  /^src\/engines\/llama\/process\/engine\.ts/,
  /^src\/engines\/upstream\/engine/,
];

function filesBelow(folder: string, ending: string): string[] {
  if (!existsSync(join(root, folder))) return [];
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .map((name) => join(folder, name))
    .filter((name) => name.endsWith(ending) && statSync(join(root, name)).isFile())
    .sort();
}

function textOf(file: string): string {
  return readFileSync(join(root, file), "utf8");
}

function moduleOf(file: string): string {
  const path = file.replace(/^src\//, "").replace(/\.tsx?$/, "");
  const containing = modules.filter((name) => path === name || path.startsWith(`${name}/`));
  return containing.toSorted((one, other) => other.length - one.length)[0] ?? "";
}

function importsOf(file: string): string[] {
  const found = textOf(file).matchAll(/(?:from|import)\s*\(?\s*"(\.[^"]+)"/g);
  return [...found].map((match) => normalize(join(dirname(file), match[1] ?? "")));
}

/** Returns a file and all files that it imports, directly or not. */
function closureOf(file: string, found = new Set<string>()): Set<string> {
  if (found.has(file)) return found;
  found.add(file);
  for (const imported of importsOf(file)) closureOf(imported, found);
  return found;
}

const sources = [...filesBelow("src", ".ts"), ...filesBelow("src", ".tsx")];
const documents = [
  "README.md",
  "ARCHITECTURE.md",
  "CONTRIBUTING.md",
  "CHANGELOG.md",
  "SECURITY.md",
  "bench/README.md",
  "examples/README.md",
  ...filesBelow("docs", ".md"),
];

test("every file in src is in a module", () => {
  for (const file of sources)
    assert.notEqual(moduleOf(file), "", `${file}: add its module to test/tidy.test.ts`);
});

test("imports run one way", () => {
  for (const file of sources) {
    for (const imported of importsOf(file)) {
      if (!imported.startsWith("src/")) assert.fail(`${file} imports ${imported}, which is outside src`);
      const [from, to] = [modules.indexOf(moduleOf(file)), modules.indexOf(moduleOf(imported))];
      assert.ok(to <= from, `${file} imports ${imported}, but ${modules[to]} comes after ${modules[from]}`);
    }
  }
});

test("no imports in a circle", () => {
  const done = new Set<string>();
  const visit = (file: string, path: string[]): void => {
    assert.ok(!path.includes(file), `a circle: ${[...path.slice(path.indexOf(file)), file].join(" -> ")}`);
    if (done.has(file)) return;
    for (const imported of importsOf(file)) visit(imported, [...path, file]);
    done.add(file);
  };
  for (const file of sources) visit(file, []);
});

test("every import names a file that exists", () => {
  for (const file of sources) {
    for (const imported of importsOf(file))
      assert.ok(existsSync(join(root, imported)), `${file}: ${imported}`);
  }
});

test("migrations are numbered without gaps or pairs", () => {
  const names = readdirSync(join(root, "src/store/migrations")).sort();
  assert.deepEqual(
    names.map((name) => name.slice(0, 4)),
    names.map((_, index) => String(index + 1).padStart(4, "0")),
    names.slice(-3).join(", "),
  );
});

test("names of files in src that are read at run time work in src and in dist", () => {
  for (const file of sources) {
    assert.doesNotMatch(
      textOf(file),
      /new URL\([^)]*\.ts["`]/,
      `${file}: the build does not rewrite this name; use extname(import.meta.filename)`,
    );
  }
});

test("every export of src is imported by another file", () => {
  const imported = new Set<string>();
  const others = ["test", "bench", "tools"].flatMap((folder) => filesBelow(folder, ".ts"));
  for (const file of [...sources, ...others]) {
    const text = textOf(file);
    const add = (names: Iterable<string>, from: string) => {
      for (const name of names) imported.add(`${normalize(join(dirname(file), from))} ${name}`);
    };
    const lists = text.matchAll(/\{([^{}]*)\}\s*(?:from|= await import\()\s*"(\.[^"]+)"/g);
    for (const [, names = "", from = ""] of lists) add(names.match(/\b(?!type\b|as\b)\w+/g) ?? [], from);
    for (const [, alias, from = ""] of text.matchAll(/\* as (\w+) from "(\.[^"]+)"/g)) {
      const uses = text.matchAll(new RegExp(`\\b${alias}\\.(\\w+)`, "g"));
      add(
        [...uses].map(([, name = ""]) => name),
        from,
      );
    }
    // The modules of threads.
    for (const [, module] of text.matchAll(/new URL\(`(\.[^`$]+)\$\{extname/g))
      add(["serve"], `${module}.ts`);
  }
  const exported = /^export (?:abstract |async )*(?:function\*?|class|const|interface|type) (\w+)/gm;
  const unused = sources.flatMap((file) =>
    [...textOf(file).matchAll(exported)]
      .map(([, name]) => `${file} ${name}`)
      .filter((name) => !imported.has(name)),
  );
  assert.deepEqual(unused, [], "no other file imports them; do not export them");
});

test("fixtures have no hooks of a whole file, because files that share a process share their modules", () => {
  for (const file of filesBelow("test/fixtures", ".ts")) {
    assert.doesNotMatch(
      textOf(file),
      /^(?:before|after)(?:Each)?\(/m,
      `${file}: call the hook in a function`,
    );
  }
});

test("tests have no time limit below that of the run, and assert no time without a control", () => {
  const isWrong = (line: string) => {
    const [, ms = "1000000"] = /\btimeout: ([\d_]+)/.exec(line) ?? [];
    const isShort = Number(ms.replaceAll("_", "")) < 200_000 && !line.includes("DatabaseSync(");
    return isShort || /performance\.now\(\) - \w+ </.test(line);
  };
  for (const file of filesBelow("test", ".test.ts")) {
    // A slow machine fails such a test. `until`, `startOwnTime` and `assertAtMost` of
    // test/fixtures wait for a state, or have a control.
    assert.deepEqual(textOf(file).split("\n").filter(isWrong), [], file);
  }
});

test("only the composition root names concrete adapters", () => {
  for (const file of sources) {
    if (moduleOf(file) === "app") continue;
    for (const imported of importsOf(file)) {
      const named = adapters.some((adapter) => adapter.test(imported)) && dirname(imported) !== dirname(file);
      assert.ok(!named, `${file} imports ${imported}: take it as a parameter, src/app.ts chooses it`);
    }
  }
});

test("no engine knows another one", () => {
  const engineOf = (file: string) => /^src\/engines\/(llama|upstream)\//.exec(file)?.[1];
  for (const file of sources) {
    const own = engineOf(file);
    if (own === undefined) continue;
    for (const imported of importsOf(file)) {
      const other = engineOf(imported);
      assert.ok(
        other === undefined || other === own,
        `${file} imports ${imported}: what engines share is in src/engines`,
      );
    }
  }
});

test("the service and the engine's child process share only the protocol", () => {
  const partOf = (file: string) => /^src\/engines\/llama\/(\w+)/.exec(file)?.[1];
  for (const file of sources) {
    const part = partOf(file);
    if (part === undefined) continue;
    for (const imported of importsOf(file)) {
      const other = partOf(imported);
      assert.ok(other === undefined || llamaImports[part]?.includes(other), `${file} imports ${imported}`);
    }
  }
});

/** Returns `console` or `portal` for a file of their pages; null for common parts and others. */
function appOf(file: string): string | null {
  return /^src\/web\/(?!shared\/)(\w+)\//.exec(file)?.[1] ?? null;
}

/** Whether a file describes actions. Pages bundle it, so it imports no code of the service. */
function isDescription(file: string): boolean {
  return (
    /^src\/(?:actions|accounts)\//.test(file) &&
    /Pages[\s*]+bundle/.test(textOf(file).split("*/", 1)[0] ?? "")
  );
}

test("descriptions of actions import no code of the service", () => {
  for (const file of sources.filter(isDescription)) {
    for (const [, path = ""] of textOf(file).matchAll(/^import (?!type )[^;]*? from "(\.[^"]+)"/gm)) {
      const imported = normalize(join(dirname(file), path));
      const isPure = [
        "src/actors.ts",
        "src/units.ts",
        "src/shell.ts",
        "src/accounts/value-rules.ts",
      ].includes(imported);
      assert.ok(isPure || isDescription(imported), `${file} imports ${imported}, which pages cannot bundle`);
    }
  }
});

test("the pages are clients of their APIs", () => {
  for (const file of sources) {
    const isPage = moduleOf(file) === "web";
    const text = textOf(file);
    for (const imported of importsOf(file)) {
      const isImportOfPage = imported.startsWith("src/web/");
      assert.ok(isPage || !isImportOfPage, `${file} imports ${imported}: the service has no page`);
    }
    if (!isPage) continue;
    const values = text.matchAll(/^import (?!type )[^;]*? from "(\.[^"]+)"/gm);
    for (const [, path = ""] of values) {
      const imported = normalize(join(dirname(file), path));
      const isShared =
        imported.startsWith("src/web/") || imported === "src/units.ts" || isDescription(imported);
      assert.ok(isShared, `${file} imports ${imported}: pages take only types from the service`);
      const isOfOtherPages = appOf(imported) !== null && appOf(imported) !== appOf(file);
      assert.ok(!isOfOtherPages, `${file} imports ${imported}: common parts are in src/web/shared`);
    }
    assert.doesNotMatch(text, /dangerouslySetInnerHTML|\.(?:inner|outer)HTML|insertAdjacentHTML/, file);
    assert.doesNotMatch(text, /["'`](?:https?:|wss?:)?\/\/[^"'`]/, `${file} names another host`);
    const isApi = file === "src/web/shared/api.ts";
    assert.ok(isApi || !/\bfetch\(|XMLHttpRequest|EventSource/.test(text), `${file}: requests are in api.ts`);
    const lines = text.split("\n").length;
    assert.ok(lines <= 400, `${file} has ${lines} lines: it is two files`);
  }
});

test("the pages have a short style sheet and one of pictures, without other hosts", () => {
  for (const file of filesBelow("src", ".css")) {
    const text = textOf(file);
    const lines = text.split("\n").length;
    assert.ok(lines <= 801, `${file} has ${lines} lines, at most 800`);
    const others = text.replace('url("./inter.woff2")', "");
    assert.doesNotMatch(others, /\/\/|url\(/, `${file} names another file or host`);
    assert.match(file, /^src\/web\/shared\/(?:style|pictures)\.css$/);
  }
});

test("the environment is read in config alone", () => {
  for (const file of sources) {
    if (moduleOf(file) === "config") continue;
    assert.ok(
      // That one is libuv's.
      !/process\.env\b(?!\.UV_THREADPOOL_SIZE \?\?=)/.test(textOf(file)),
      `${file} reads process.env: config/load.ts reads the environment`,
    );
  }
});

/** Returns the lines that are no comments. */
function codeOf(file: string): string[] {
  return textOf(file)
    .split("\n")
    .filter((line) => !/^\s*(?:\/?\*|\/\/|--)/.test(line));
}

test("messages name commands and documents as the reader can use them", () => {
  const exempt = new Set([
    "src/invocation.ts",
    // Old versions of Node load it, so it imports nothing.
    "src/cli/node-version.ts",
    // The document is the same for all installations.
    "src/http/api/openapi.ts",
  ]);
  for (const file of sources.filter((each) => !exempt.has(each))) {
    for (const line of codeOf(file)) {
      assert.doesNotMatch(
        line,
        /(?<![\w./-])(?:npx |\.\/)?inkwell (?:--|[a-z])/,
        `${file}: write \${inkwell("...")} of src/invocation.ts`,
      );
      for (const [, path = ""] of line.matchAll(/(?<!shipped\("|from ")\b((?:docs|deploy)\/[\w./-]+\w)/g)) {
        assert.fail(`${file}: write \${shipped("${path}")} of src/invocation.ts`);
      }
      for (const [, path = ""] of line.matchAll(/shipped\("([^"]+)"\)/g)) {
        assert.ok(existsSync(join(root, path)), `${file} names ${path}, which does not exist`);
      }
    }
  }
});

test("no literal is spread to hold several properties on a line", () => {
  // The values that a method makes of a list, as in `...["a"].map(f)`, may be spread.
  const list = /\[(?:[^[\]]|\[[^\]]*\])*\]/.source;
  const spread = new RegExp(`\\.\\.\\.(?:\\{|(?:${list}|\\(\\s*${list}\\s*(?:as const)?\\s*\\))(?!\\s*\\.))`);
  for (const file of sources) {
    const [found] = spread.exec(codeOf(file).join("\n")) ?? [];
    assert.equal(found, undefined, `${file}: write the properties or items themselves`);
  }
});

test("no file is too long to hold in the head", () => {
  for (const file of [...sources, ...filesBelow("bench", ".ts")]) {
    const lines = textOf(file).split("\n").length;
    assert.ok(lines <= 500, `${file} has ${lines} lines: it is two files`);
  }
});

test("every file says at its head what it is for", () => {
  for (const file of sources) {
    const head = textOf(file).replace(/^#!.*\n/, "");
    assert.match(head, /^(?:\/\*\*|\/\/)[ \n]/, `${file} begins with a comment that says what it is for`);
  }
});

test("comment lines have fewer than 100 columns", () => {
  for (const file of ["src", "test", "bench", "tools"].flatMap((folder) => filesBelow(folder, ".ts"))) {
    for (const [index, line] of textOf(file).split("\n").entries()) {
      const isLong = /^\s*(?:\/\*\*|\*|\/\/) /.test(line) && line.length >= 100;
      assert.ok(!isLong, `${file}:${index + 1} has a comment of ${line.length} columns`);
    }
  }
});

test("comments of src name files that exist", () => {
  const ends = new Set<string>();
  for (const file of ["src", "test", "bench", "tools", "docs", "deploy"].flatMap((each) =>
    filesBelow(each, ""),
  )) {
    const parts = file.split("/");
    for (const index of parts.keys()) ends.add(parts.slice(index).join("/"));
  }
  let names = 0;
  for (const file of sources) {
    for (const [comment] of textOf(file).matchAll(/^\s*(?:\/?\*|\/\/).*$|\s\/\/ .*$/gm)) {
      for (const [name] of comment.matchAll(/(?<![\w./*-])(?:[\w.-]+\/)*[\w-][\w.-]*\.(?:tsx?|sql|md)\b/g)) {
        const path = name.startsWith("..") ? normalize(join(dirname(file), name)) : name;
        assert.ok(ends.has(path) || existsSync(join(root, path)), `${file}: ${name} does not exist`);
        names += 1;
      }
    }
  }
  assert.ok(names > 50, `only ${names} names found`);
});

/** Classes that stand elsewhere, each with its reason. */
const otherFiles: Readonly<Record<string, string>> = {
  "src/collections.ts BusySet": "small collections are in one file",
  "src/collections.ts FairQueue": "small collections are in one file",
  "src/http/api/sign-in.ts BrowserSignIn": "the file has the whole sign-in",
  "src/http/public/uploads.ts Upload": "part of Uploads",
  "src/ledger/ledger.ts Ledger": "the batcher is the door of the ledger for all modules",
};

test("an exported class stands in a file with its name, or with the rest of it after its folder", () => {
  for (const file of sources) {
    const folders = dirname(file).split(/[/-]/);
    // An error stands beside the code that throws it.
    for (const [, name = ""] of textOf(file).matchAll(/^export (?:abstract )?class (\w+)\b(?! extends)/gm)) {
      const words = name
        .replace(/(?<=[a-z\d])[A-Z]/g, (letter) => `-${letter}`)
        .toLowerCase()
        .split("-");
      const rest = words.filter((word) => !folders.includes(word));
      const names = [words, rest].map((each) => `${each.join("-")}.ts`);
      const isHere = names.some((each) => basename(file) === each || basename(file) === `${each}x`);
      assert.ok(isHere || `${file} ${name}` in otherFiles, `${file} has the class ${name}`);
    }
  }
});

test("no barrels, no second versions, no drawers", () => {
  for (const file of sources) {
    assert.doesNotMatch(file, /(^|\/)(index|utils?|helpers?|misc|common)\.ts$/, file);
    assert.doesNotMatch(file, /[-_.]?v[2-9]\.ts$/i, file);
    assert.match(file, /^src\/[a-z0-9/.-]+$/, `${file} is a kebab-case name`);
  }
});

/** Returns the text below a heading of a document. */
function sectionOf(document: string, heading: string): string {
  const section = textOf(document)
    .split(/^## /m)
    .find((part) => part.startsWith(`${heading}\n`));
  assert.ok(section !== undefined, `${document} has no section ${heading}`);
  return section;
}

/** Returns the files of src whose code matches. */
function filesWith(pattern: RegExp, files: readonly string[] = sources): string[] {
  return files.filter((file) => codeOf(file).some((line) => pattern.test(line)));
}

test("ARCHITECTURE.md lists the modules in the order of their imports", () => {
  const rows = [...sectionOf("ARCHITECTURE.md", "Modules").matchAll(/^\| (`src\/.*?) \|/gm)];
  const listed = rows.flatMap(([, cell = ""]) => /`src\/([a-z/-]+)\/`/.exec(cell)?.[1] ?? []);
  const folders = modules.filter((name) => existsSync(join(root, "src", name)));
  assert.deepEqual(listed, folders);
});

test("each refusal in the picture of ARCHITECTURE.md is thrown in its file or below", () => {
  const [, picture = ""] = sectionOf("ARCHITECTURE.md", "One request").split("```");
  let section = "";
  let refusals = 0;
  for (const line of picture.split("\n")) {
    const [path] = /src\/[\w/.-]+\w\/?/.exec(line) ?? [];
    if (path !== undefined) assert.ok(existsSync(join(root, path)), `${path} does not exist`);
    const [, code] = /├─ (\w+)/.exec(line) ?? [];
    if (code === undefined) section = path ?? section;
    else {
      const file = path?.endsWith(".ts") ? path : section;
      const throwing = filesWith(new RegExp(`"${code}"`), [...closureOf(file)]);
      assert.ok(code in catalogue && throwing.length > 0, `${code} is not thrown in or below ${file}`);
      refusals += 1;
    }
  }
  assert.ok(refusals > 8);
});

test("each term of the glossary is used in the code", () => {
  const code = sources.map(textOf).join("\n");
  for (const [, cell = ""] of sectionOf("ARCHITECTURE.md", "Glossary").matchAll(/^\| ([a-z].*?) \|/gm)) {
    if (cell === "term") continue;
    for (const term of cell.replaceAll("`", "").split(", "))
      assert.match(
        code,
        new RegExp(term.replaceAll(" ", "[ _-]?"), "i"),
        `"${term}": the code has another name`,
      );
  }
});

test("rule 1: only the pipeline runs engines, after the hold", () => {
  assert.deepEqual(filesWith(/\.generate\(/), ["src/chat/generate.ts"]);
  const pipeline = textOf("src/chat/generate.ts");
  assert.ok(pipeline.indexOf('kind: "hold"') < pipeline.indexOf(".generate("));
});

test("rules 2 and 3: only commits call the kernel, which has no clock and no I/O", () => {
  const kernel = "src/ledger/kernel.ts";
  const callers = sources.filter((file) => importsOf(file).includes(kernel));
  assert.deepEqual(callers, ["src/store/postgres/commits.ts", "src/store/sqlite/commits.ts"]);
  for (const file of closureOf(kernel)) {
    assert.ok(
      ["actors", "ledger", "errors", "objects", "spelling", "units"].includes(moduleOf(file)),
      `the kernel imports ${file}`,
    );
    assert.doesNotMatch(
      codeOf(file).join("\n"),
      /from "(?!\.)|Date\.now|new Date\(\)|performance\.|setTimeout/,
      file,
    );
  }
});

test("rule 3: engines and the public format know no store, account or listener", () => {
  // They know prices and counts of tokens, and how to repeat work.
  const allowed = ["src/ledger/rows.ts", "src/ledger/rate-limits.ts", "src/ledger/pricing.ts"];
  for (const file of sources.filter((each) => /^src\/(?:engines|http\/openai-format)\//.test(each))) {
    for (const imported of importsOf(file)) {
      const isForeign =
        /^src\/(?:ledger|store|accounts|http)\//.test(imported) && moduleOf(imported) !== moduleOf(file);
      assert.ok(!isForeign || allowed.includes(imported), `${file} imports ${imported}`);
    }
  }
});

test("rule 4: the command line and the APIs change nothing themselves", () => {
  const change = /\b(?:ledger\.apply(?:Late)?|store\.(?:putAccount|applyPlans)|stopRequests\.add)\(/;
  for (const file of filesWith(change))
    assert.match(file, /^src\/(?:accounts|actions|app|chat|sign-in|store)\//, file);
});

test("rule 5: tables.ts and docs/ledger.md have every table", () => {
  const statementsOnly = ["node", "stop_request", "daily_count", "usage_close", "usage_sum", "usage_summed"];
  const created = filesBelow("src/store/migrations", ".sql").flatMap((file) =>
    [...textOf(file).matchAll(/^create table (\w+)/gm)].map(([, name = ""]) => name),
  );
  const described = [...textOf("src/store/tables.ts").matchAll(/tableOf\("(\w+)"/g)].map(
    ([, name = ""]) => name,
  );
  assert.deepEqual(created.sort(), [...new Set([...described, ...statementsOnly])].sort());
  const listed = sectionOf("docs/ledger.md", "Tables");
  for (const table of created)
    assert.ok(listed.includes(`\`${table}\``), `docs/ledger.md does not list ${table}`);
});

test("rule 9: secrets are hashed and compared in two files alone", () => {
  const owners = ["src/accounts/keys.ts", "src/accounts/operator-sessions.ts"];
  assert.deepEqual(filesWith(/timingSafeEqual\(/), owners);
});

test("docs/ledger.md lists the rules of the audit by their names", () => {
  const code = ["src/ledger/account-fold.ts", "src/store/audit.ts", "src/store/usage-steps.ts"]
    .map(textOf)
    .join("\n");
  const listed = [...sectionOf("docs/ledger.md", "The audit").matchAll(/^- (.+)$/gm)].map(
    ([, rule = ""]) => rule,
  );
  for (const rule of listed) assert.ok(code.includes(`"${rule}"`), `no rule of the audit: ${rule}`);
  for (const rule of Object.values(foldedInvariants)) assert.ok(listed.includes(rule), `not listed: ${rule}`);
});

test("every error code has a test", () => {
  const tests = filesBelow("test", ".ts").map(textOf).join("\n");
  for (const code of Object.keys(catalogue)) assert.match(tests, new RegExp(`\\b${code}\\b`), code);
});

test("a unit ends a name, and only a limit follows it", () => {
  const wrong = /\b[a-z]\w*(?:Ms|Micro|Bytes|Seconds)(?!Max|Min|Of\b|For\b|Per[A-Z])[A-Z]\w*/;
  assert.deepEqual(filesWith(wrong), []);
});

test("docs/errors.md has one row for each code for callers, as the catalogue has it", () => {
  const rows = new Map<string, { status: string; type: string }>();
  for (const line of textOf("docs/errors.md").split("\n")) {
    const cells = line.split("|").map((cell) => cell.trim().replaceAll("`", ""));
    const [, status = "", type = "", code = ""] = cells;
    if (/^\d{3}$/.test(status)) {
      assert.ok(!rows.has(code), `docs/errors.md has two rows for ${code}`);
      rows.set(code, { status, type });
    }
  }
  const expected = Object.entries<Entry>(catalogue)
    .filter(([, entry]) => entry.for !== "operator")
    .map(([code, { status, type }]) => [code, { status: `${status}`, type }]);
  assert.deepEqual(Object.fromEntries(rows), Object.fromEntries(expected));
});

test("pages for operators are short", () => {
  for (const page of filesBelow("docs/operating", ".md")) {
    // Without the lines between the cells of a table.
    const words = textOf(page)
      .split(/\s+/)
      .filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
    assert.ok(words <= 1100, `${page} has ${words} words: it is two pages`);
  }
});

test("decision records are complete", () => {
  for (const record of filesBelow("docs/decisions", ".md")) {
    if (record.endsWith("README.md")) continue;
    const required = [
      /^# \S/m,
      /^Date: \d{4}-\d\d-\d\d\. Status: /m,
      /^## Context$/m,
      /^## Decision$/m,
      /^## Consequences$/m,
    ];
    for (const part of required) assert.match(textOf(record), part, record);
    const name = record.replace("docs/decisions/", "");
    assert.ok(
      textOf("docs/decisions/README.md").includes(`](${name})`),
      `docs/decisions/README.md lists ${name}`,
    );
  }
});

test("the changelog begins with the version of package.json, and the day of its release", () => {
  const { version } = JSON.parse(textOf("package.json")) as { version: string };
  const [, named, day] =
    /^# Changelog\n\n## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)\n/.exec(textOf("CHANGELOG.md")) ?? [];
  assert.equal(named, version);
  const [, releasedOn] = /^const releasedOn = "(.+)";$/m.exec(textOf("src/version.ts")) ?? [];
  assert.ok(day === "unreleased" || day === releasedOn, `released on ${day}, or ${releasedOn}`);
});

test("every path that a document names exists", () => {
  for (const document of documents) {
    const named = textOf(document).matchAll(
      /`((?:src|test|bench|docs|tools|models|deploy)\/[\w./*-]+)`|\]\((?!https?:|#)([^)#]+)/g,
    );
    for (const [, inCode, linked] of named) {
      const path = inCode ?? relative(root, join(root, dirname(document), linked ?? ""));
      const isThere = path.includes("*")
        ? globSync(path, { cwd: root }).length > 0
        : existsSync(join(root, path));
      assert.ok(isThere, `${document} names ${path}, which does not exist`);
      const ofCheckout = /^(?:src|test|bench|tools)\//;
      const isLost = linked !== undefined && ofCheckout.test(path) && !ofCheckout.test(document);
      assert.ok(!isLost, `${document} links to ${path}, which the package lacks: name it without a link`);
    }
  }
});

test("every section that a document links to exists", () => {
  for (const document of documents) {
    for (const [, path = "", anchor = ""] of textOf(document).matchAll(
      /\]\(((?!https?:)[^)#]*)#([^)]+)\)/g,
    )) {
      const target = path === "" ? document : relative(root, join(root, dirname(document), path));
      const { sections } = articleOf(textOf(target), (each) => each);
      const isThere = sections.some(({ id }) => id === anchor);
      assert.ok(isThere, `${document} links to ${target}#${anchor}, which does not exist`);
    }
  }
});

test("every script that a document names is one of package.json's", () => {
  const { scripts } = JSON.parse(textOf("package.json")) as { scripts: Record<string, string> };
  for (const document of documents) {
    for (const [, name = ""] of textOf(document).matchAll(/npm run (?:-s )?([a-z:-]+)/g)) {
      assert.ok(name in scripts, `${document} names the script ${name}`);
    }
  }
});
