/**
 * Failed starts: one message with the fault, its place and the remedy, exit code 1, and nothing
 * left behind. No unwanted folder, no account without its key, no lock and no process.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { startServer } from "../fixtures/file-server.ts";
import { type InnerOptions, inkwell, startInside } from "../fixtures/inner-program.ts";
import {
  configure,
  entry,
  environment,
  miniature,
  mountSmallDisk,
  newFolder,
  startProgram,
} from "../fixtures/program.ts";
import { releaseTest, some } from "../fixtures/thorough.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

/** The whole of stderr of a start that comes to nothing. */
async function refusedStart(folder: string, options: InnerOptions = {}): Promise<string> {
  return assertRefused(await inkwell(folder, ["serve"], options));
}

/** The same in a process of its own, of this user. */
async function refusedProcess(
  folder: string,
  options: { env?: Record<string, string>; uid?: number } = {},
): Promise<string> {
  await using service = startProgram(folder, options);
  const { code } = await service.ended;
  return assertRefused({ code, stdout: service.stdout, stderr: service.stderr });
}

function assertRefused({ code, stdout, stderr }: { code: number | null; stdout: string; stderr: string }) {
  assert.equal(code, 1, stdout + stderr);
  assert.doesNotMatch(stdout, /ink_|API/, "nothing is promised");
  assert.doesNotMatch(stderr, /^ +at /m, "an operator is not shown a stack");
  return stderr;
}

/** One message, in words; log lines are not for the operator at the terminal. */
function assertOneMessage(stderr: string, ...words: (string | RegExp)[]): void {
  const lines = stderr.trimEnd().split("\n");
  const messages = lines.filter((line) => !line.startsWith("{"));
  assert.equal(messages.length, 1, stderr);
  for (const word of words) {
    if (typeof word === "string") assert.ok(messages[0]?.includes(word), `${word}: ${stderr}`);
    else assert.match(messages[0] ?? "", word);
  }
}

async function assertStartsAfterAll(folder: string, options: InnerOptions = {}): Promise<void> {
  await using service = startInside(folder, options);
  const { key } = await service.up();
  assert.ok(key !== null, "the first account's key was not lost with the failed start");
  await service.stop();
}

async function takePort(): Promise<Server & AsyncDisposable & { port: number }> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  assert.ok(address !== null && typeof address !== "string");
  return Object.assign(server, { port: address.port });
}

const ports = [
  ["public", "INKWELL_PORT", "listen: { port }"],
  ["operator", "INKWELL_OPERATOR_PORT", "operator: { port }"],
  ["portal", "INKWELL_PORTAL_PORT", "portal: { port }"],
] as const;
for (const [name, variable, key] of some(ports, 3)) {
  test(`reports a used ${name} port and leaves nothing behind`, async () => {
    await using folder = await newFolder();
    await using taken = await takePort();
    const stderr = await refusedStart(folder.path, { env: { [variable]: `${taken.port}` } });
    assertOneMessage(
      stderr,
      `Port ${taken.port} on 127.0.0.1 is in use`,
      "Stop the other program",
      key,
      variable,
    );
    assert.deepEqual(readdirSync(folder.path), ["inkwell.yaml"]);
  });
}

test("reports a file in place of the data folder", async () => {
  await using folder = await newFolder();
  const data = path.join(folder.path, "data");
  writeFileSync(data, "mine");
  assertOneMessage(await refusedStart(folder.path), `The data folder ${data}`, "INKWELL_DATA");
  assert.equal(readFileSync(data, "utf8"), "mine");
});

test("reports a file system without folders at once, in every command that needs one", {
  skip: process.platform === "linux" ? false : "only Linux has /proc",
}, async () => {
  await using folder = await newFolder();
  {
    // A hanging process reacts to no other signal.
    const options = { timeout: 200_000, killSignal: "SIGKILL" } as const;
    const env = { ...environment(folder.path), INKWELL_DATA: "/proc/inkwell/data" };
    const ran = spawnSync(process.execPath, [entry, "serve"], { cwd: folder.path, env, ...options });
    assert.equal(ran.status, 1, `${ran.error}`);
  }
  for (const data of some(["/proc/inkwell", "/proc/inkwell/data"], 2)) {
    const refusal = async (...args: string[]) =>
      assertRefused(await inkwell(folder.path, args, { env: { INKWELL_DATA: data } }));
    const stderr = await refusal("serve");
    assertOneMessage(stderr, `The data folder ${data} cannot be written`, "INKWELL_DATA");
    const made = await refusal("account", "create", "ada", "--plan", "starter");
    assertOneMessage(made, `The database ${data}/inkwell.db cannot be written`, "database: sqlite:PATH");
    assertOneMessage(await refusal("account", "list"), `There is no ledger at ${data}/inkwell.db`);
  }
});

const isRoot = process.getuid?.() === 0;
const nobody = 65534;

/**
 * Root writes everywhere, so under root the program runs as another user; the checkout must then
 * be readable to it.
 */
function cannotBeAnother(): string | false {
  if (process.platform === "win32") return "Windows has no such permissions";
  if (!isRoot) return false;
  const seen = spawnSync(process.execPath, ["--check", entry], { uid: nobody, gid: nobody });
  return seen.status === 0 ? false : "the checkout is not readable for another user";
}

test("reports a data folder that is not writable", { skip: cannotBeAnother() }, async () => {
  await using folder = await newFolder();
  chmodSync(folder.path, 0o755);
  const options = isRoot ? { uid: nobody } : {};
  const data = path.join(folder.path, "data");
  mkdirSync(data);
  chmodSync(data, 0o555);
  assertOneMessage(
    await refusedProcess(folder.path, options),
    `The data folder ${data} cannot be written`,
    "INKWELL_DATA",
  );
  assert.deepEqual(readdirSync(data), []);
  chmodSync(data, 0o755);
});

releaseTest(
  "reports a parent of the data folder that is not writable",
  {
    skip: cannotBeAnother(),
  },
  async () => {
    await using folder = await newFolder();
    chmodSync(folder.path, 0o555);
    const stderr = await refusedProcess(folder.path, isRoot ? { uid: nobody } : {});
    assertOneMessage(
      stderr,
      `The data folder ${path.join(folder.path, "data")} cannot be`,
      "EACCES",
      "INKWELL_DATA",
    );
    chmodSync(folder.path, 0o755);
  },
);

test("refuses a truncated model file, and prints the key after its repair", async () => {
  await using folder = await newFolder();
  const file = path.join(folder.path, "short.gguf");
  const whole = readFileSync(miniature);
  configure(folder.path, { model: { source: file } });
  writeFileSync(file, whole.subarray(0, Math.floor(whole.length / 2)));
  assertOneMessage(await refusedStart(folder.path), file, /cut|short|damaged|ends/);
  writeFileSync(file, whole);
  await assertStartsAfterAll(folder.path);
});

// test/model/model-file.test.ts has files that llama.cpp cannot load.
releaseTest("refuses a model file that llama.cpp cannot load, with the reason", async () => {
  await using folder = await newFolder();
  const file = path.join(folder.path, "odd.gguf");
  const bytes = readFileSync(miniature);
  // The name of a tensor that the architecture needs.
  const at = bytes.indexOf("output_norm.weight");
  assert.ok(at > 0);
  bytes.write("outputXnorm.weight", at, "latin1");
  writeFileSync(file, bytes);
  configure(folder.path, { model: { source: file } });
  assertOneMessage(
    await refusedStart(folder.path),
    `models.smollm2-135m-instruct: The model file ${file} `,
    "output_norm.weight",
  );
});

test("reports all faults of a configuration with file, line and valid form", async () => {
  await using folder = await newFolder();
  writeFileSync(path.join(folder.path, "inkwell.yaml"), "listen:\n  prot: 80\nlimits:\n  queue: many\n");
  const stderr = await refusedStart(folder.path);
  assert.match(stderr, /^The configuration is wrong in 2 places:\n/);
  assert.match(stderr, /inkwell\.yaml:2: .*prot.*port/);
  assert.match(stderr, /inkwell\.yaml:4: limits\.queue: found "?many"?, expected/);
  assert.deepEqual(readdirSync(folder.path), ["inkwell.yaml"]);
});

test("does not change a file that is no database, that of another program or of a newer version", async () => {
  await using folder = await newFolder();
  const data = path.join(folder.path, "data");
  const file = path.join(data, "inkwell.db");
  mkdirSync(data);
  writeFileSync(file, "This is not a database. ".repeat(100));
  const before = readFileSync(file);
  assertOneMessage(
    await refusedStart(folder.path),
    `${file} is not an SQLite database`,
    "Nothing was changed",
  );
  assert.deepEqual(readFileSync(file), before);

  const another = path.join(data, "another.db");
  const foreign = new DatabaseSync(another);
  foreign.exec("create table guests (name text)");
  foreign.close();
  const env = { INKWELL_DATABASE: `sqlite:${another}` };
  assertOneMessage(
    await refusedStart(folder.path, { env }),
    another,
    "not one of Inkwell's",
    "database: sqlite:PATH",
  );
});

test("refuses a database of a newer version, which still works with that version", async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  configureUpstream(folder.path, upstream);
  await assertStartsAfterAll(folder.path);
  const db = new DatabaseSync(path.join(folder.path, "data", "inkwell.db"));
  db.exec("insert into migration values (99, '0099-later.sql', 'x', 0)");
  assertOneMessage(await refusedStart(folder.path), "inkwell.db", /newer/);
  db.exec("delete from migration where version = 99");
  db.close();
  await using service = startInside(folder.path);
  assert.equal((await service.up()).key, null);
});

const downloads = [
  ["in its middle", false],
  ["before the start if the size is known", true],
] as const;
for (const [name, length] of some(downloads, 2)) {
  test(`reports a full disk during the download of a model ${name}`, async (t) => {
    await using folder = await newFolder();
    const models = path.join(folder.path, "models");
    using disk = mountSmallDisk(t, models);
    if (disk === null) return;
    const content = readFileSync(miniature);
    await using server = await startServer((_request, response) => {
      response.setHeader("content-type", "application/octet-stream");
      if (length) response.setHeader("content-length", content.length);
      response.end(content);
    });
    configure(folder.path, { model: { source: `${server.origin}/ink.gguf` } });
    const stderr = await refusedStart(folder.path, { env: { INKWELL_MODELS: models } });
    assert.match(stderr, new RegExp(`${models}.*(no space|room|full)|(no space|room|full).*${models}`, "i"));
    assert.deepEqual(
      readdirSync(models).filter((file) => file.endsWith(".gguf")),
      [],
      "no half file has the final name",
    );
    await using upstream = await startUpstream();
    configureUpstream(folder.path, upstream);
    await assertStartsAfterAll(folder.path);
  });
}

test("reports a full disk of the ledger in every command, and continues when there is space", async (t) => {
  await using folder = await newFolder();
  const data = path.join(folder.path, "data");
  using disk = mountSmallDisk(t, data, "1m");
  if (disk === null) return;
  const filler = path.join(data, "filler");
  const made = await inkwell(folder.path, ["account", "create", "ada", "--plan", "starter"]);
  assert.equal(made.code, 0, made.stderr);
  assert.throws(() => writeFileSync(filler, Buffer.alloc(1024 * 1024)), /ENOSPC/);
  for (const command of some(["credits add ada 5 --payment p1", "account list", "audit"], 3)) {
    const stderr = assertRefused(await inkwell(folder.path, command.split(" ")));
    assertOneMessage(stderr, "There is no space left for the database", path.join(data, "inkwell.db"));
  }
  rmSync(filler);
  const added = await inkwell(folder.path, ["credits", "add", "ada", "5", "--payment", "p1"]);
  assert.equal(added.code, 0, added.stderr);
});

test("ends the processes of all models if one model fails to start", async () => {
  await using folder = await newFolder();
  const bad = path.join(folder.path, "bad.gguf");
  writeFileSync(bad, "no");
  writeFileSync(
    path.join(folder.path, "inkwell.yaml"),
    `models:
  good: { engine: llama, source: ${miniature}, context_window: 1024, threads: 1, gpu: off, price: { prompt: 1, completion: 1 } }
  bad: { engine: llama, source: ./bad.gguf, price: { prompt: 1, completion: 1 } }
`,
  );
  await using service = startInside(folder.path);
  assert.equal(await service.ended, 1, service.stderr);
  assert.ok(service.enginePid() > 0, "the good one had been started; closing the program waits for its end");
  assert.ok(existsSync(path.join(folder.path, "data", "inkwell.db")));
});
