/**
 * Runs the tests: `npm test` runs all of them but those before a release, `npx node test/run.ts
 * test/http` those of a folder or file, and `npx node test/run.ts --release` all of them, with all
 * examples (fixtures/thorough.ts).
 *
 * Test files run in parallel. They share one PostgreSQL, on which each creates its own databases,
 * and the unpacked Chromium. Files of some folders also share processes, each as a suite. Browser
 * tests that a file in test/browser/together imports share a process, a browser and a service.
 * Files that measure latency or the event loop run one by one at the end. All results form
 * one report, with totals and failures at its end. The exit status is 1 if a test fails.
 */
import {
  existsSync,
  globSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, relative, sep } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { run } from "node:test";
import { spec, type TestEvent } from "node:test/reporters";
import { pathToFileURL } from "node:url";
import { bundlesVariable, makeBundles } from "./fixtures/bundles.ts";
import { noChromium, sharedChromiumVariable, unpackChromium } from "./fixtures/chromium.ts";
import { lastingFolderVariable, noPostgres, sharedServerVariable, start } from "./fixtures/postgres.ts";
import { thoroughVariable } from "./fixtures/thorough.ts";

/** Files that measure latency or the event loop. */
const alone = ["test/unit/busy-set.test.ts", "test/unit/event-loop.test.ts"];
const releaseOption = "--release";

/** Long files come first, so that none of them is left over when the others have ended. */
const folders = ["contract", "http", "unit", "browser", "model", "service"];

/**
 * Folders whose files share this many processes. What a file would do before its first test in a
 * process of its own takes 0.3 CPU-s, and code that runs for the first time is slow.
 */
const sharing = new Map([
  ["contract", 3],
  ["http", 4],
  ["unit", 4],
]);

/** They have all been started by half of the run, so that short files are left for its end. */
const othersPerShared = 3;

/** A test that hangs fails after this time. */
const testMsMax = 240_000;

/** A file whose process is still running after this time fails. */
const fileMsMax = 1_800_000;

/** New objects get more room than at first in Node: to collect them often takes a tenth. */
const youngMiB = 8;

/** A file system in memory, on Linux. */
const memoryFolder = "/dev/shm";

/** A run needs less than 2 GiB. */
const memoryBytesMin = 8 * 1024 ** 3;

const root = join(import.meta.dirname, "..");
/** Modules that are loaded before a test file. */
const preloaded = ["light-tests", "file-end", "kept-threads", "kept-responses"].map(
  (name) => new URL(`./fixtures/${name}.ts`, import.meta.url),
);
for (const file of alone) {
  if (!existsSync(join(root, file))) throw new Error(`${file} is missing: update the list in test/run.ts.`);
}
const isRelease = process.argv.includes(releaseOption);
if (isRelease) process.env[thoroughVariable] = "1";
const given = process.argv.slice(2).filter((name) => name !== releaseOption);
const wanted =
  given.length > 0
    ? given
    : (isRelease ? [...folders, "release"] : folders).map((folder) => join(root, "test", folder));
const missing = wanted.filter((path) => !existsSync(path));
const files = missing.length > 0 ? [] : wanted.flatMap(filesIn).sort((a, b) => rankOf(a) - rankOf(b));
if (files.length === 0) {
  console.error(`There are no tests in ${(missing.length > 0 ? missing : wanted).join(", ")}.`);
  process.exit(2);
}

// Modules are parsed and stripped of their types once, not in each of the processes.
process.env.NODE_COMPILE_CACHE ??= join(root, "node_modules", ".cache", "node");
const bundles = await makeBundles();
const modules = mkdtempSync(join(tmpdir(), "inkwell-tests-"));
process.env[bundlesVariable] = bundles;
process.env.INKWELL_TEST_FILE_MS_MAX ??= String(fileMsMax);
await using opened = new AsyncDisposableStack();
opened.defer(() => rmSync(modules, { recursive: true }));
if (files.some((file) => file.startsWith("test/browser/")) && noChromium === null) {
  process.env[sharedChromiumVariable] = opened.use(await unpackChromium()).folder;
}
process.env[lastingFolderVariable] = tmpdir();
if (hasMemory()) process.env.TMPDIR = memoryFolder;
if (noPostgres === null) process.env[sharedServerVariable] = (await start()).folder;

await pipeline(Readable.from(report()), new spec(), process.stdout);

/** Databases and folders of tests are then made, synced and removed in a fifth of the time. */
function hasMemory(): boolean {
  if (!existsSync(memoryFolder)) return false;
  const { bavail, bsize } = statfsSync(memoryFolder);
  return bavail * bsize >= memoryBytesMin;
}

function filesIn(path: string): string[] {
  const found = statSync(path).isFile() ? [path] : globSync(join(path, "**/*.test.ts"));
  return found.map((file) => relative(root, file).replaceAll(sep, "/"));
}

function rankOf(file: string): number {
  return folders.indexOf(file.split("/")[1] ?? "");
}

/** Replaces test files by the files that import them, if all that these import are among them. */
function together(given: readonly string[]): string[] {
  const groups = globSync("test/browser/together/*.ts", { cwd: root }).map((file) => {
    const imports = readFileSync(join(root, file), "utf8").matchAll(/^import "\.\.\/(.+)";$/gm);
    return { file, members: [...imports].map(([, name]) => `test/browser/${name}`) };
  });
  const whole = groups.filter(({ members }) => members.every((member) => given.includes(member)));
  const grouped = new Set(whole.flatMap(({ members }) => members));
  return [...whole.map(({ file }) => file), ...given.filter((file) => !grouped.has(file))];
}

/**
 * Replaces test files that share processes by the modules of these processes. Each comes before
 * some files with a process of their own: if all of them ran side by side, they would often wait
 * at the same time.
 */
function inProcesses(given: readonly string[]): string[] {
  const groups = Map.groupBy(given, (file) => {
    const [, folder = ""] = file.split("/");
    const count = sharing.get(folder);
    if (count === undefined) return file;
    return `${folder}-${given.indexOf(file) % count}`;
  });
  const shared: string[] = [];
  const others: string[] = [];
  for (const [name, files] of groups) {
    if (files.length === 1) others.push(...files);
    else shared.push(moduleOf(name, files));
  }
  const mixed = others.flatMap((file, n) =>
    n % othersPerShared === 0 ? [...shared.splice(0, 1), file] : [file],
  );
  return [...mixed, ...shared];
}

/** Writes a module that imports these test files, and returns its path. */
function moduleOf(name: string, files: readonly string[]): string {
  const module = join(modules, `${name}.mjs`);
  const suites = files.map((file) => {
    const [title, url] = [file, pathToFileURL(join(root, file)).href].map((text) => JSON.stringify(text));
    // Tests and hooks of the file belong to this suite.
    return `describe(${title}, async () => void (await import(${url})));\n`;
  });
  writeFileSync(module, `import { describe } from "node:test";\n${suites.join("")}`);
  return module;
}

/** Events of all test files, followed by the totals. */
async function* report(): AsyncGenerator<TestEvent> {
  const startedMs = performance.now();
  const totals = new Map<string, number>();
  let summary: TestEvent | null = null;
  const parts = [
    // Tests wait as often as they compute.
    {
      files: inProcesses(together(files.filter((file) => !alone.includes(file)))),
      concurrency: availableParallelism() + 3,
    },
    { files: files.filter((file) => alone.includes(file)), concurrency: 1 },
  ];
  for (const part of parts.filter(({ files }) => files.length > 0)) {
    const events: AsyncIterable<TestEvent> = run({
      ...part,
      cwd: root,
      execArgv: [
        `--test-timeout=${testMsMax}`,
        `--require=${bundles}`,
        `--min-semi-space-size=${youngMiB}`,
        ...preloaded.map((url) => `--import=${url}`),
      ],
    });
    for await (const event of events) {
      // Totals of this part: the report has those of all parts.
      if (event.type === "test:diagnostic" && event.data.file === undefined) continue;
      if (event.type !== "test:summary" || event.data.file !== undefined) {
        yield event;
        continue;
      }
      summary = event;
      if (!event.data.success) process.exitCode = 1;
      for (const [name, count] of Object.entries(event.data.counts)) {
        totals.set(name, (totals.get(name) ?? 0) + count);
      }
    }
  }
  totals.set("seconds", Math.round((performance.now() - startedMs) / 1000));
  for (const [name, count] of totals) {
    yield { type: "test:diagnostic", data: { nesting: 0, level: "info", message: `${name} ${count}` } };
  }
  // The reporter lists the failures when it gets a summary.
  if (summary !== null) yield summary;
}
