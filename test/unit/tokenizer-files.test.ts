/** Tokenizer files: paths, and downloads from a hub that lacks files, fails or sends nonsense. */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { parseTokenizerSource } from "../../src/model-files/source.ts";
import { findTokenizerFiles, obtainTokenizerFiles } from "../../src/model-files/tokenizer-files.ts";
import { type Handler, startServer } from "../fixtures/file-server.ts";
import { minute } from "../fixtures/times.ts";

const root = await mkdtemp(path.join(tmpdir(), "inkwell-tokenizer-files-"));
after(() => rm(root, { recursive: true }));

async function options(hubEndpoint: string) {
  return {
    modelsDir: await mkdtemp(path.join(root, "models-")),
    progress: { note: () => {}, received: () => {} },
    signal: new AbortController().signal,
    hubEndpoint,
    hubToken: "hf_secret",
    environment: {},
    timeouts: { connectMs: minute, headersMs: minute, bodyIdleMs: minute },
    backoffMs: 1,
  };
}

/** A hub whose repository `owner/name` has these files at `main`. */
function hub(files: Record<string, string>): Handler {
  return (request, response) => {
    const name = /^\/owner\/name\/resolve\/main\/(.+)$/.exec(request.url ?? "")?.[1] ?? "";
    const content = files[name];
    if (content === undefined) response.writeHead(404, { "x-error-code": "EntryNotFound" }).end();
    else response.writeHead(200, { "content-length": Buffer.byteLength(content) }).end(content);
  };
}

test("downloads the files of a repository once, with the token of the hub", async () => {
  await using server = await startServer(
    hub({ "tokenizer.json": "{}", "tokenizer_config.json": '{"a":1}', "chat_template.jinja": "{{ x }}" }),
  );
  const given = await options(server.origin);
  const obtained = await obtainTokenizerFiles("hf:owner/name", given);
  assert.ok(obtained.found && obtained.files.config !== null && obtained.files.template !== null);
  assert.equal(await readFile(obtained.files.config, "utf8"), '{"a":1}');
  assert.equal(server.requests[0]?.authorization, "Bearer hf_secret");
  const asked = server.requests.length;
  assert.deepEqual(await obtainTokenizerFiles("hf:owner/name", given), obtained);
  assert.equal(server.requests.length, asked);
  assert.deepEqual(await findTokenizerFiles("hf:owner/name", given.modelsDir), obtained.files);
  assert.equal(await findTokenizerFiles("hf:owner/name@v2", given.modelsDir), null, "another revision");
});

test("accepts a repository without configuration and template", async () => {
  await using server = await startServer(hub({ "tokenizer.json": "{}" }));
  const obtained = await obtainTokenizerFiles("hf:owner/name", await options(server.origin));
  assert.ok(obtained.found);
  assert.deepEqual([obtained.files.config, obtained.files.template], [null, null]);
});

test("returns the reason if the hub lacks the tokenizer, sends nonsense or is not reachable", async () => {
  await using server = await startServer(hub({ "tokenizer_config.json": "{}" }));
  const given = await options(server.origin);
  const reason = async (endpoint = server.origin) => {
    const obtained = await obtainTokenizerFiles("hf:owner/name", { ...given, hubEndpoint: endpoint });
    assert.ok(!obtained.found);
    assert.equal(await findTokenizerFiles("hf:owner/name", given.modelsDir), null);
    return obtained.reason;
  };
  assert.match(await reason(), /no such file/);
  server.handle = hub({ "tokenizer.json": "<html>" });
  assert.match(await reason(), /not JSON/);
  assert.match(await reason("http://127.0.0.1:9"), /refused/);
  const folders = await readdir(path.join(given.modelsDir, "tokenizers"));
  assert.equal(folders.length, 1);
});

test("keeps no tokenizer whose chat template could not be downloaded", async () => {
  const handle = hub({ "tokenizer.json": "{}", "tokenizer_config.json": "{}" });
  await using server = await startServer((request, response, count) => {
    if (request.url?.endsWith(".jinja") !== true) handle(request, response, count);
    else response.writeHead(403).end();
  });
  const given = await options(server.origin);
  const obtained = await obtainTokenizerFiles("hf:owner/name", given);
  assert.match(obtained.found ? "" : obtained.reason, /may not have the file/);
  assert.equal(await findTokenizerFiles("hf:owner/name", given.modelsDir), null);
});

test("finds a file or a folder, and names a path that does not exist", async () => {
  const folder = path.join(root, "own");
  await mkdir(folder);
  await assert.rejects(findTokenizerFiles(folder, root), /has no tokenizer\.json/);
  await writeFile(path.join(folder, "tokenizer.json"), "{}");
  const file = path.join(folder, "tokenizer.json");
  const expected = { tokenizer: file, config: null, template: null };
  assert.deepEqual(await findTokenizerFiles(folder, root), expected);
  assert.deepEqual(await findTokenizerFiles(file, root), expected);
  await assert.rejects(findTokenizerFiles(path.join(root, "none"), root), /none cannot be read/);
});

test("refuses sources that are not understood, without the password in them", () => {
  for (const text of ["hf:owner", "hf:owner/name/tokenizer.json", "hf:../name", "https://user:pass@host/x"]) {
    assert.throws(
      () => parseTokenizerSource(text),
      (error: Error) => {
        return /not understood: write the path/.test(error.message) && !error.message.includes("pass@");
      },
      text,
    );
  }
});
