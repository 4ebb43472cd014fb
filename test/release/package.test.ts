/**
 * The package of `npm pack`, installed in an empty folder: it has the whole program, fetches no
 * CUDA, brings its Node, and runs the service with the embedded engine. Installs from the cache
 * and registry of npm, as `npm ci` does. test/service/package.test.ts checks its other files.
 */
import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { globSync, mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { nodeTooOld } from "../../src/cli/node-version.ts";
import { bundledLibraries } from "../../tools/bundled-libraries.ts";
import { environment, newFolder } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const manifest = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));

/** A slow machine compiles, and the registry may be far. */
const timeout = 500_000;
const installMsMax = 450_000;

const scratch = await newFolder();
const folder = path.join(scratch.path, "empty");
const installed = path.join(folder, "node_modules/inkwell");

/** The environment of a person's shell, without the Node of this checkout. */
function shell(): Record<string, string> {
  const found = process.env.PATH ?? "";
  const PATH = found
    .split(path.delimiter)
    .filter((each) => !each.startsWith(root))
    .join(path.delimiter);
  const { HOME = "" } = process.env;
  // Libraries as they are installed.
  const { NODE_OPTIONS: _, ...own } = environment(folder);
  return { ...own, PATH, HOME };
}

/** How this machine reaches the registry. A library may be newer than the one in the cache. */
function network(): Record<string, string> {
  const names =
    /^(?:(?:https?_|no_)proxy|node_extra_ca_certs|npm_config_(?:registry|cafile|noproxy|(?:https_)?proxy))$/i;
  return Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value = ""]) => (names.test(name) ? [[name, value]] : [])),
  );
}

before(
  async () => {
    mkdirSync(folder);
    await run("npm", ["pack", "--pack-destination", scratch.path], { cwd: root });
    const [tarball = ""] = globSync("*.tgz", { cwd: scratch.path });
    assert.equal(tarball, `inkwell-${manifest.version}.tgz`);
    const args = ["install", "--prefer-offline", "--no-audit", "--no-fund", `../${tarball}`];
    await run("npm", args, { cwd: folder, env: { ...shell(), ...network() }, timeout: installMsMax });
  },
  { timeout },
);

test("contains the compiled program and its pages", () => {
  const files = readdirSync(path.join(installed, "dist"), { recursive: true, withFileTypes: true })
    .filter((each) => each.isFile())
    .map((each) => path.relative(installed, path.join(each.parentPath, each.name)));
  const others = files.filter(
    (file) => !/\.(?:js|sql)$/.test(file) && !/^dist\/(?:web|docs-site)\//.test(file),
  );
  assert.deepEqual(others, ["dist/sbom.cdx.json"]);
  const sources = globSync("src/**/*.{ts,sql}", { cwd: root, exclude: ["src/web/**"] });
  for (const source of sources) {
    const compiled = source.replace(/^src/, "dist").replace(/\.ts$/, ".js");
    assert.ok(files.includes(compiled), `${compiled} is in the package`);
  }
  const pages = files.filter((file) => file.startsWith("dist/web/"));
  assert.deepEqual(
    pages.map((file) => file.replace(/-\w{8}\./, ".")).toSorted(),
    [
      ...["inter", ...bundledLibraries].map((name) => `dist/web/${name}.license`),
      ...["console", "portal"].flatMap((app) =>
        ["assets/icon.svg", "assets/inter.woff2", "assets/main.js", "assets/style.css", "index.html"].map(
          (name) => `dist/web/${app}/${name}`,
        ),
      ),
    ].toSorted(),
  );
});

test("names itself and its libraries with their licences, as CycloneDX", () => {
  const list = JSON.parse(readFileSync(path.join(installed, "dist/sbom.cdx.json"), "utf8"));
  const { name, version } = list.metadata.component;
  assert.deepEqual([list.bomFormat, name, version], ["CycloneDX", manifest.name, manifest.version]);
  const libraries: { name: string; licenses?: unknown[] }[] = list.components;
  const names = new Set(libraries.map((library) => library.name));
  const { dependencies, devDependencies } = manifest;
  for (const library of Object.keys(dependencies)) assert.ok(names.has(library), library);
  for (const library of Object.keys(devDependencies))
    assert.equal(names.has(library), bundledLibraries.includes(library), library);
  for (const library of libraries) assert.notEqual(library.licenses?.length ?? 0, 0, library.name);
});

test("fetches no CUDA, and brings its Node", () => {
  const folders = readdirSync(path.join(folder, "node_modules/@node-llama-cpp"));
  assert.ok(folders.length > 0, "binaries for this machine are installed");
  for (const name of folders) assert.doesNotMatch(name, /cuda/);
  const version = execFileSync(path.join(folder, "node_modules/.bin/node"), ["--version"]);
  assert.equal(String(version).trim(), `v${manifest.dependencies.node}`);
});

test("npx inkwell serve generates text, and the commands use its ledger", { timeout }, async () => {
  const args = ["inkwell", "serve"];
  // A group of its own, because a terminal sends Ctrl-C to each process of npx.
  const child = spawn("npx", args, { cwd: folder, env: shell(), detached: true });
  const ended = new Promise((resolve) => child.on("close", (code, signal) => resolve({ code, signal })));
  let shown = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      shown += text;
    });
  }
  try {
    await until("the service is up", () => {
      assert.equal(child.exitCode, null, shown);
      return shown.includes("Ctrl-C stops the service.");
    });
    assert.match(shown, /In another terminal: npx inkwell chat/);
    const [url = ""] = /http:\S+\/v1(?= *\n)/.exec(shown) ?? [];
    const key = readFileSync(path.join(folder, "data/first-key"), "utf8").trim();
    const answer = await fetch(`${url}/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify({
        model: "smollm2-135m-instruct",
        max_tokens: 4,
        messages: [{ role: "user", content: "What is an inkwell?" }],
      }),
    });
    assert.equal(answer.status, 200, shown);
    const { usage } = JSON.parse(await answer.text());
    assert.equal(usage.completion_tokens, 4);

    const [, operatorUrl = ""] = /Operator +(http:\S+)/.exec(shown) ?? [];
    const page = await (await fetch(`${operatorUrl}/console`)).text();
    const [script = ""] = /\/console\/assets\/main-\w+\.js/.exec(page) ?? [];
    assert.equal((await fetch(`${operatorUrl}${script}`)).status, 200, page);
    assert.equal((await fetch(`${operatorUrl}/docs/operating/plans.html`)).status, 200);

    const { stdout } = await run("npx", ["inkwell", "usage", "--json"], { cwd: folder, env: shell() });
    assert.match(stdout, /"completion_tokens":4/);
    const audit = await run("npx", ["inkwell", "audit", "--json"], { cwd: folder, env: shell() });
    assert.equal(JSON.parse(audit.stdout).sound, true);
  } finally {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGINT");
    await ended;
  }
});

test("an older Node gets an error that names the installed one", () => {
  const program = path.join(installed, manifest.bin.inkwell.replace(/^\.\//, ""));
  const message = nodeTooOld("20.20.2", "/usr/bin/node", program);
  const node = path.join(folder, "node_modules/node/bin/node");
  assert.equal(
    message,
    `Inkwell needs Node 26 or newer, and /usr/bin/node is Node 20.20.2. Start it with "npx inkwell" in the folder in which it is installed, or with the Node that was installed with it:\n  ${node} ${program}\n`,
  );
  assert.ok((statSync(program).mode & 0o100) !== 0);
  const [, command = ""] = message.split("\n  ");
  assert.equal(String(execFileSync("sh", ["-c", `${command.trim()} --version`])).trim(), manifest.version);
  assert.equal(nodeTooOld("26.0.0", "node", program), null);
  const elsewhere = nodeTooOld("24.21.0", "node", "/nowhere/dist/cli/inkwell.js");
  assert.match(
    String(elsewhere),
    /Install Node 26, and start Inkwell with it\. Or let npm install it: npm 12 does so after "npm install-scripts approve --no-allow-scripts-pin node node-llama-cpp && npm rebuild"\.\n$/,
  );
  assert.equal(manifest.engines.node, ">=26");
});

test.after(() => scratch[Symbol.asyncDispose]());
