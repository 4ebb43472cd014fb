/**
 * Download of one file from servers that redirect, interrupt, hang, refuse and send wrong
 * content.
 */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { OperatorError } from "../../src/errors.ts";
import { type ModelFileOptions, type Obtained, obtainModelFile } from "../../src/model-files/model-files.ts";
import { prepareFolder } from "../../src/model-files/part-file.ts";
import type { Progress } from "../../src/model-files/progress.ts";
import { miniaturePath } from "../../tools/make-miniature.ts";
import {
  type ContentOptions,
  type FileServer,
  hubHandler,
  sendContent,
  sha256,
  startServer,
} from "../fixtures/file-server.ts";
import { minute } from "../fixtures/times.ts";
import { unlessStalled } from "../fixtures/unless-stalled.ts";

const content = await readFile(miniaturePath);
const half = Math.floor(content.length / 2);

/** The first response stops after half of the content. */
const hangsFirst = (count: number) => (count === 1 ? { etag: '"a"', hangAfterBytes: half } : { etag: '"a"' });
const root = await mkdtemp(join(tmpdir(), "inkwell-weights-"));
after(() => rm(root, { recursive: true, force: true }));

type Sent = Omit<ContentOptions, "hangAfterBytes"> & { content?: Buffer };

interface Seen {
  notes: string[];
  progress: Progress[];
}

async function options(): Promise<ModelFileOptions & { seen: Seen }> {
  const seen: Seen = { notes: [], progress: [] };
  return {
    seen,
    hubEndpoint: "http://127.0.0.1:9",
    packageIndexUrl: "http://127.0.0.1:9/simple",
    environment: {},
    modelsDir: await mkdtemp(join(root, "models-")),
    progress: { note: (text) => seen.notes.push(text), received: (progress) => seen.progress.push(progress) },
    signal: new AbortController().signal,
    timeouts: { connectMs: minute, headersMs: minute, bodyIdleMs: 400 },
    backoffMs: 1,
  };
}

/**
 * Breaks the server's connections when as many bytes have arrived as it sends; sooner, and some
 * might be lost on the way.
 */
function cutting(
  given: ModelFileOptions,
  server: FileServer,
  isCut: (receivedBytes: number) => boolean,
): ModelFileOptions {
  const progress = (seen: Progress): void => {
    given.progress.received(seen);
    if (isCut(seen.receivedBytes)) server.cut();
  };
  return { ...given, progress: { ...given.progress, received: progress } };
}

function firstTime(bytes: number): (receivedBytes: number) => boolean {
  let before = true;
  return (receivedBytes) => {
    const now = before && receivedBytes === bytes;
    if (now) before = false;
    return now;
  };
}

/** The reason why the only source failed. */
function reasonOf(obtained: Obtained): string {
  assert.ok(!obtained.found, "the fetch should have failed");
  assert.equal(obtained.attempts.length, 1);
  return obtained.attempts[0]?.reason ?? "";
}

/** The visible files of the models folder; locks are hidden. */
async function filesIn(folder: string): Promise<string[]> {
  return (await readdir(folder)).filter((name) => !name.startsWith("."));
}

async function assertWhole(obtained: Obtained, given: ModelFileOptions): Promise<void> {
  assert.ok(obtained.found, JSON.stringify(obtained));
  assert.ok(content.equals(await readFile(obtained.path)));
  const files = (await filesIn(given.modelsDir)).filter((name) => !name.endsWith(".unchecked"));
  assert.equal(files.length, 1, "nothing but the file itself is left");
}

const hubFile = { repository: "ink/tiny-GGUF", revision: "main", path: "q4/tiny.gguf" };
const hubSource = "hf:ink/tiny-GGUF/q4/tiny.gguf";

test("downloads from the hub's storage host without sending it the token", async () => {
  await using storage = await startServer((request, response) =>
    sendContent(request, response, content, { etag: '"s1"' }),
  );
  await using hub = await startServer(hubHandler({ ...hubFile, content, storage: storage.origin }));
  const given = await options();
  const obtained = await obtainModelFile(hubSource, {
    ...given,
    hubEndpoint: `${hub.origin}/`,
    hubToken: "hf_secret",
  });
  await assertWhole(obtained, given);
  assert.equal(hub.requests[0]?.authorization, "Bearer hf_secret");
  assert.equal(storage.requests[0]?.authorization, undefined);
  assert.deepEqual(await filesIn(given.modelsDir), ["ink--tiny-GGUF--q4--tiny.gguf"]);
  const last = given.seen.progress.at(-1);
  assert.deepEqual(last, {
    fileName: "ink--tiny-GGUF--q4--tiny.gguf",
    receivedBytes: content.length,
    totalBytes: content.length,
  });
});

test("a file whose SHA-256 nothing names is marked as unchecked until its mark is deleted", async () => {
  await using server = await startServer((request, response) => sendContent(request, response, content));
  const given = await options();
  const source = `${server.origin}/tiny.gguf`;
  for (let n = 0; n < 2; n += 1) {
    const obtained = await obtainModelFile(source, given);
    assert.ok(obtained.found);
    assert.match(obtained.unchecked ?? "", /sha256sum tiny-\w+\.gguf.*delete tiny-\w+\.gguf\.unchecked$/);
    if (n === 1) await rm(`${obtained.path}.unchecked`);
  }
  const obtained = await obtainModelFile(source, given);
  assert.equal(obtained.found && obtained.unchecked, null);
});

test("a mirror of the hub that names the SHA-256 as etag is believed, and a damaged file is refused", async () => {
  const etag = `"${sha256(content)}"`;
  let sent = content;
  await using mirror = await startServer((request, response) =>
    sendContent(request, response, sent, { etag }),
  );
  const given = { ...(await options()), hubEndpoint: mirror.origin };
  sent = Buffer.from(content);
  sent[half] = (sent[half] ?? 0) ^ 255;
  assert.match(reasonOf(await obtainModelFile(hubSource, given)), /sent a file with SHA-256/);
  sent = content;
  const obtained = await obtainModelFile(hubSource, given);
  await assertWhole(obtained, given);
  assert.equal(obtained.found && obtained.unchecked, null);
});

test("does not download a file that exists", async () => {
  await using server = await startServer((request, response) => sendContent(request, response, content));
  const given = await options();
  await assertWhole(await obtainModelFile(`${server.origin}/tiny.gguf`, given), given);
  const again = await obtainModelFile(`${server.origin}/tiny.gguf?signature=other`, given);
  assert.ok(again.found);
  assert.equal(server.requests.length, 1);
});

test("sends the token after a redirect within the hub", async () => {
  await using storage = await startServer((request, response) => sendContent(request, response, content));
  const moved = hubHandler({ ...hubFile, content, storage: storage.origin });
  await using hub = await startServer((request, response, count) => {
    if (request.url?.startsWith("/old/name/")) {
      response.writeHead(307, { location: "/ink/tiny-GGUF/resolve/main/q4/tiny.gguf" }).end();
    } else moved(request, response, count);
  });
  const given = await options();
  const obtained = await obtainModelFile("hf:old/name/tiny.gguf", {
    ...given,
    hubEndpoint: hub.origin,
    hubToken: "t",
  });
  await assertWhole(obtained, given);
  assert.deepEqual(
    hub.requests.map(({ authorization }) => authorization),
    ["Bearer t", "Bearer t"],
  );
});

test("downloads a revision and keeps it apart from other revisions", async () => {
  await using storage = await startServer((request, response) => sendContent(request, response, content));
  await using hub = await startServer(
    hubHandler({ ...hubFile, revision: "v2", content, storage: storage.origin }),
  );
  const given = await options();
  await assertWhole(
    await obtainModelFile("hf:ink/tiny-GGUF@v2/q4/tiny.gguf", { ...given, hubEndpoint: hub.origin }),
    given,
  );
  assert.match((await filesIn(given.modelsDir)).join(), /^ink--tiny-GGUF--v2--q4--tiny-[0-9a-f]{8}\.gguf$/);
});

// In containers each node is process 1, and several may share one folder.
test("leaves the probe file of another node with the same process id alone", async () => {
  const folder = await mkdtemp(join(root, "shared-"));
  const others = join(folder, `.probe-${process.pid}`);
  await mkdir(others);
  await prepareFolder(folder);
  assert.deepEqual(await readdir(folder), [`.probe-${process.pid}`]);
});

/** Downloads whose connection breaks after half of the content, at the first request. */
const broken: [name: string, first: Sent, second: Sent, range: string | undefined, ifRange?: string][] = [
  [
    "resumes an interrupted download if the content is the same",
    { etag: '"a"' },
    { etag: '"a"' },
    `bytes=${half}-`,
    '"a"',
  ],
  [
    "starts over if the content has changed",
    { etag: '"a"', content: Buffer.alloc(content.length, 7) },
    { etag: '"b"' },
    `bytes=${half}-`,
    '"a"',
  ],
  [
    "starts over if the server does not support ranges",
    { etag: '"a"', ranges: false },
    { etag: '"a"', ranges: false },
    `bytes=${half}-`,
    '"a"',
  ],
  ["starts over if nothing identifies the content", {}, {}, undefined],
];
for (const [name, first, second, range, ifRange] of broken) {
  test(name, async () => {
    await using server = await startServer((request, response, count) => {
      const { content: sent = content, ...options } =
        count === 1 ? { ...first, hangAfterBytes: half } : second;
      sendContent(request, response, sent, options);
    });
    const given = cutting(await options(), server, firstTime(half));
    await assertWhole(await obtainModelFile(`${server.origin}/tiny.gguf`, given), given);
    assert.equal(server.requests.length, 2);
    assert.equal(server.requests[1]?.range, range);
    assert.equal(server.requests[1]?.ifRange, ifRange);
  });
}

test("starts over if the server sends a range of other content, against if-range", async () => {
  await using server = await startServer((request, response, count) => {
    const other = Buffer.alloc(content.length, 7);
    if (count === 1) return sendContent(request, response, other, { etag: '"a"', hangAfterBytes: half });
    delete request.headers["if-range"];
    sendContent(request, response, content, { etag: '"b"' });
  });
  const given = cutting(await options(), server, firstTime(half));
  await assertWhole(await obtainModelFile(`${server.origin}/tiny.gguf`, given), given);
  assert.deepEqual(
    server.requests.map(({ range }) => range),
    [undefined, `bytes=${half}-`, undefined],
  );
});

test("starts over if the hub names other content than that of the part", async () => {
  // The storage host sends no etag, so only the hub's name for the content identifies it.
  await using storage = await startServer((request, response, count) => {
    if (count === 1)
      sendContent(request, response, Buffer.alloc(content.length, 7), { hangAfterBytes: half });
    else sendContent(request, response, content);
  });
  const [before, now] = ["a".repeat(64), undefined].map((linkedSha256) =>
    hubHandler({
      ...hubFile,
      content,
      storage: storage.origin,
      ...(linkedSha256 === undefined ? {} : { linkedSha256 }),
    }),
  );
  await using hub = await startServer((request, response, count) =>
    (count === 1 ? before : now)?.(request, response, count),
  );
  const given = cutting(await options(), storage, firstTime(half));
  await assertWhole(await obtainModelFile(hubSource, { ...given, hubEndpoint: hub.origin }), given);
  assert.deepEqual(
    storage.requests.map(({ range }) => range),
    [undefined, `bytes=${half}-`, undefined],
  );
});

test("resumes content that the hub names, although nodes of the storage name it differently", async () => {
  await using storage = await startServer((request, response, count) => {
    delete request.headers["if-range"];
    sendContent(request, response, content, { ...hangsFirst(count), etag: `"${count}"` });
  });
  const answer = hubHandler({ ...hubFile, content, storage: storage.origin });
  await using hub = await startServer(answer);
  const given = cutting(await options(), storage, firstTime(half));
  await assertWhole(await obtainModelFile(hubSource, { ...given, hubEndpoint: hub.origin }), given);
  assert.deepEqual(
    storage.requests.map(({ range }) => range),
    [undefined, `bytes=${half}-`],
  );
});

test("resumes a cancelled download at the next start", async () => {
  await using server = await startServer((request, response, count) =>
    sendContent(request, response, content, hangsFirst(count)),
  );
  const given = await options();
  const stopping = new AbortController();
  const stopped = obtainModelFile(`${server.origin}/tiny.gguf`, {
    ...given,
    signal: stopping.signal,
    progress: {
      note: () => {},
      received: ({ receivedBytes }) => {
        if (receivedBytes === half) stopping.abort(new Error("stopped"));
      },
    },
  });
  await assert.rejects(stopped, /stopped/);
  assert.ok(
    (await filesIn(given.modelsDir)).every((name) => /\.part(\.json)?$/.test(name)),
    "no half file has its name",
  );
  await assertWhole(await obtainModelFile(`${server.origin}/tiny.gguf`, given), given);
  assert.equal(server.requests[1]?.range, `bytes=${half}-`);
});

test("stops waiting, for a lock or a retry, at once and with the caller's reason", async () => {
  await using server = await startServer((request, response, count) => {
    if (count === 1) response.writeHead(503, { "retry-after": "60" }).end();
    else sendContent(request, response, content);
  });
  const given = await options();
  const stopping = new AbortController();
  const noted = Promise.withResolvers<void>();
  const watched = {
    ...given,
    signal: stopping.signal,
    progress: {
      ...given.progress,
      note: (text: string) => (text.includes("another process") ? noted.resolve() : undefined),
    },
  };
  const both = [1, 2].map(() => obtainModelFile(`${server.origin}/tiny.gguf`, watched));
  const rejected = Promise.all(both.map((one) => assert.rejects(one, /^Error: enough$/)));
  await noted.promise;
  stopping.abort(new Error("enough"));
  await rejected;
});

test("downloads nothing if the interruption came after the last byte", async () => {
  await using server = await startServer((request, response) =>
    sendContent(request, response, content, { etag: '"a"' }),
  );
  const given = await options();
  const url = `${server.origin}/tiny.gguf`;
  await assertWhole(await obtainModelFile(url, given), given);
  const [name] = await filesIn(given.modelsDir);
  const path = join(given.modelsDir, name ?? "");
  await writeFile(`${path}.part`, content);
  await writeFile(`${path}.part.json`, JSON.stringify({ url, validator: '"a"', contentSha256: null }));
  await rm(path);
  await assertWhole(await obtainModelFile(url, given), given);
  assert.equal(server.requests[1]?.range, `bytes=${content.length}-`);
});

test("retries if the server stops responding", () =>
  unlessStalled(async () => {
    await using server = await startServer((request, response, count) => {
      if (count === 2) return; // not even headers
      sendContent(request, response, content, hangsFirst(count));
    });
    const timeouts = { connectMs: minute, headersMs: 1000, bodyIdleMs: 400 };
    const given = { ...(await options()), timeouts };
    await assertWhole(await obtainModelFile(`${server.origin}/tiny.gguf`, given), given);
    assert.match(given.seen.notes[0] ?? "", /stopped sending; trying again/);
    assert.match(given.seen.notes[1] ?? "", /does not answer; trying again/);
  }));

test("gives up a server that never responds after five attempts", async () => {
  await using server = await startServer(() => {});
  const given = await options();
  assert.match(
    reasonOf(
      await obtainModelFile(`${server.origin}/tiny.gguf`, {
        ...given,
        timeouts: { connectMs: minute, headersMs: 50, bodyIdleMs: 50 },
      }),
    ),
    /does not answer \(5 times\)/,
  );
  assert.equal(given.seen.notes.length, 4, given.seen.notes.join("\n"));
});

test("gives up a server whose informational responses do not end", async () => {
  const timers: NodeJS.Timeout[] = [];
  await using server = await startServer((_, response) => {
    const hint = () => response.socket?.write("HTTP/1.1 103 Early Hints\r\n\r\n");
    timers.push(
      setInterval(hint, 5),
      setTimeout(() => response.socket?.destroy(), 5000),
    );
  });
  const timeouts = { connectMs: minute, headersMs: 50, bodyIdleMs: 50 };
  try {
    const obtained = await obtainModelFile(`${server.origin}/tiny.gguf`, { ...(await options()), timeouts });
    assert.match(reasonOf(obtained), /does not answer \(5 times\)/);
  } finally {
    for (const timer of timers) clearTimeout(timer);
  }
});

test("does not read the body of a redirect", async () => {
  await using storage = await startServer((request, response) => sendContent(request, response, content));
  const cut = Promise.withResolvers<boolean>();
  await using server = await startServer((_, response) => {
    response.writeHead(302, { location: `${storage.origin}/tiny.gguf` });
    const drip = setInterval(() => response.write("x"), 5);
    const end = setTimeout(() => response.end(), 5000);
    response.on("close", () => {
      cut.resolve(!response.writableFinished);
      clearInterval(drip);
      clearTimeout(end);
    });
  });
  const given = await options();
  await assertWhole(await obtainModelFile(`${server.origin}/tiny.gguf`, given), given);
  assert.equal(await cut.promise, true, "the connection was closed in the middle of the body");
});

test("completes over a connection that keeps breaking, as long as it makes progress", async () => {
  const step = Math.ceil(content.length / 12);
  await using server = await startServer((request, response) =>
    sendContent(request, response, content, { etag: '"a"', hangAfterBytes: step }),
  );
  const given = cutting(await options(), server, (bytes) => bytes % step === 0 && bytes < content.length);
  await assertWhole(await obtainModelFile(`${server.origin}/tiny.gguf`, given), given);
  assert.ok(server.requests.length >= 12);
});

test("deletes a file with the wrong checksum and reports both checksums", async () => {
  await using storage = await startServer((request, response) => sendContent(request, response, content));
  const linkedSha256 = "0".repeat(64);
  await using hub = await startServer(
    hubHandler({ ...hubFile, content, storage: storage.origin, linkedSha256 }),
  );
  const given = await options();
  const reason = reasonOf(await obtainModelFile(hubSource, { ...given, hubEndpoint: hub.origin }));
  assert.ok(reason.includes(sha256(content)) && reason.includes(linkedSha256), reason);
  assert.deepEqual(await filesIn(given.modelsDir), []);
  assert.equal(storage.requests.length, 1);
});

test("discards a damaged part and downloads the file once more", async () => {
  await using storage = await startServer((request, response) =>
    sendContent(request, response, content, { etag: '"a"' }),
  );
  await using hub = await startServer(hubHandler({ ...hubFile, content, storage: storage.origin }));
  const given = await options();
  const path = join(given.modelsDir, "ink--tiny-GGUF--q4--tiny.gguf.part");
  await writeFile(path, Buffer.alloc(half, 9));
  const url = `${hub.origin}/ink/tiny-GGUF/resolve/main/q4/tiny.gguf`;
  await writeFile(`${path}.json`, JSON.stringify({ url, validator: '"a"', contentSha256: sha256(content) }));
  await assertWhole(await obtainModelFile(hubSource, { ...given, hubEndpoint: hub.origin }), given);
  assert.deepEqual(
    storage.requests.map(({ range }) => range),
    [`bytes=${half}-`, undefined],
  );
});

test("reports and deletes a web page in place of a model", async () => {
  await using server = await startServer((_request, response) => {
    response.writeHead(200, { "content-type": "text/html" }).end("<html>Please sign in</html>");
  });
  const given = await options();
  assert.match(reasonOf(await obtainModelFile(`${server.origin}/tiny.gguf`, given)), /web page/);
  assert.deepEqual(await filesIn(given.modelsDir), []);
});

const refusals: [name: string, status: number, headers: Record<string, string>, message: RegExp][] = [
  ["a missing file", 404, {}, /answers 404: it has no \/tiny\.gguf/],
  [
    "a file that the repository lacks",
    404,
    { "x-error-code": "EntryNotFound" },
    /the repository has no such file/,
  ],
  ["an unknown revision", 404, { "x-error-code": "RevisionNotFound" }, /no such revision/],
  [
    "a repository that is private or not there",
    401,
    { "x-error-code": "RepoNotFound" },
    /private .*HF_TOKEN/,
  ],
  ["a missing token", 401, {}, /answers 401: it needs a valid token/],
  ["a gated model", 403, { "x-error-code": "GatedRepo" }, /accept the model's terms/],
  ["a forbidden file", 403, {}, /answers 403: this user may not have the file/],
  ["a long retry-after", 429, { "retry-after": "3600" }, /asks to wait for 3600 s/],
  ["a status that means nothing here", 418, {}, /answers 418/],
];

for (const [name, status, headers, message] of refusals) {
  test(`reports ${name} in one sentence and does not retry`, async () => {
    await using server = await startServer((_request, response) =>
      response.writeHead(status, headers).end("no"),
    );
    const given = await options();
    assert.match(reasonOf(await obtainModelFile(`${server.origin}/tiny.gguf`, given)), message);
    assert.equal(server.requests.length, 1);
    assert.deepEqual(await filesIn(given.modelsDir), []);
  });
}

test("retries after too many requests, when the server allows it", async () => {
  await using server = await startServer((request, response, count) => {
    if (count === 1) response.writeHead(429, { "retry-after": "1" }).end();
    else sendContent(request, response, content);
  });
  const given = await options();
  const startMs = performance.now();
  await assertWhole(await obtainModelFile(`${server.origin}/tiny.gguf`, given), given);
  assert.ok(performance.now() - startMs >= 990);
  assert.match(given.seen.notes[0] ?? "", /answers 429: too many requests; trying again in 1 s/);
});

test("retries after a server error", async () => {
  await using server = await startServer((request, response, count) => {
    if (count <= 3) response.writeHead(500 + count).end();
    else sendContent(request, response, content);
  });
  const given = await options();
  await assertWhole(await obtainModelFile(`${server.origin}/tiny.gguf`, given), given);
  assert.equal(server.requests.length, 4);
});

test("reports an unreachable host at once", async () => {
  const server = await startServer(() => {});
  await server[Symbol.asyncDispose]();
  const given = await options();
  assert.match(reasonOf(await obtainModelFile(`${server.origin}/tiny.gguf`, given)), /connection refused/);
  assert.match(
    reasonOf(await obtainModelFile("https://nowhere.invalid/tiny.gguf", given)),
    /nowhere\.invalid cannot be reached/,
  );
});

test("stops following endless redirects", async () => {
  await using server = await startServer((_request, response) =>
    response.writeHead(302, { location: "/again.gguf" }).end(),
  );
  const given = await options();
  assert.match(reasonOf(await obtainModelFile(`${server.origin}/tiny.gguf`, given)), /redirects too often/);
});

test("sends the user in the URL to that host only, and never shows it", async () => {
  await using server = await startServer((_request, response) => response.writeHead(401).end());
  const given = await options();
  const address = server.origin.replace("http://", "http://ann:p%40ss@");
  const obtained = await obtainModelFile(`${address}/tiny.gguf`, given);
  assert.equal(server.requests[0]?.authorization, `Basic ${Buffer.from("ann:p@ss").toString("base64")}`);
  assert.ok(!JSON.stringify([obtained, given.seen]).includes("p@ss"));
});

test("reports a folder that cannot be created or written", async (t) => {
  const given = await options();
  const file = join(given.modelsDir, "file");
  await writeFile(file, "");
  await assert.rejects(
    obtainModelFile("https://nowhere.invalid/tiny.gguf", { ...given, modelsDir: join(file, "models") }),
    (error) => error instanceof OperatorError && /a file has its name.*models_dir/.test(error.message),
  );
  if (process.getuid?.() === 0) return t.diagnostic("running as root: folders that refuse are not tried");
  const closed = join(given.modelsDir, "closed");
  await mkdir(closed);
  await chmod(closed, 0o500);
  await assert.rejects(
    obtainModelFile("https://nowhere.invalid/tiny.gguf", { ...given, modelsDir: closed }),
    (error) => error instanceof OperatorError && /is not writable/.test(error.message),
  );
});

/** Mounts a file system of 1 MB, if this user may. */
async function withSmallDisk(
  t: { skip(reason: string): void },
  use: (folder: string) => Promise<void>,
): Promise<void> {
  const folder = await mkdtemp(join(root, "disk-"));
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], { stdio: "pipe" });
  } catch {
    return t.skip("this user may not mount a small disk");
  }
  try {
    await use(folder);
  } finally {
    execFileSync("umount", [folder]);
  }
}

test("refuses a download that does not fit on the disk, before the first byte", async (t) => {
  await withSmallDisk(t, async (folder) => {
    await using server = await startServer((request, response) => sendContent(request, response, content));
    const given = { ...(await options()), modelsDir: folder };
    await assert.rejects(obtainModelFile(`${server.origin}/tiny.gguf`, given), (error) => {
      return (
        error instanceof OperatorError &&
        /is full: it needs 2\.1 MB, and 1\.\d MB are free/.test(error.message)
      );
    });
    assert.equal(given.seen.progress.length, 0);
    assert.deepEqual(await filesIn(folder), []);
  });
});

test("reports a disk that becomes full during a download, and frees the space", async (t) => {
  await withSmallDisk(t, async (folder) => {
    await using server = await startServer((request, response) =>
      sendContent(request, response, content, { unsized: true }),
    );
    const given = { ...(await options()), modelsDir: folder };
    await assert.rejects(obtainModelFile(`${server.origin}/tiny.gguf`, given), (error) => {
      return (
        error instanceof OperatorError &&
        /is full: it needs more than \d\.\d MB; free some space/.test(error.message)
      );
    });
    assert.ok(given.seen.progress.length > 1);
    assert.deepEqual(await filesIn(folder), []);
  });
});

test("accepts a file without a length when the server ends it", async () => {
  await using server = await startServer((request, response) =>
    sendContent(request, response, content, { unsized: true }),
  );
  const given = await options();
  await assertWhole(await obtainModelFile(`${server.origin}/tiny.gguf`, given), given);
  assert.equal(given.seen.progress.at(-1)?.totalBytes, undefined);
});

test("downloads once for two callers in one process", async () => {
  await using server = await startServer((request, response) => sendContent(request, response, content));
  const given = await options();
  const url = `${server.origin}/tiny.gguf`;
  const both = await Promise.all([obtainModelFile(url, given), obtainModelFile(url, given)]);
  for (const obtained of both) await assertWhole(obtained, given);
  assert.equal(server.requests.length, 1);
  assert.deepEqual(given.seen.notes.length, 1, "one of them said that it waits");
});

test("continues the download of a process that was killed", async () => {
  const hanging = Promise.withResolvers<void>();
  await using server = await startServer((request, response, count) => {
    sendContent(request, response, content, hangsFirst(count));
    if (count === 1) hanging.resolve();
  });
  const given = await options();
  const url = `${server.origin}/tiny.gguf`;
  const script = `
    import { obtainModelFile } from ${JSON.stringify(new URL("../../src/model-files/model-files.ts", import.meta.url).href)};
    const progress = { note() {}, received({ receivedBytes }) { if (receivedBytes === ${half}) console.log("half"); } };
    await obtainModelFile(${JSON.stringify(url)}, { modelsDir: ${JSON.stringify(given.modelsDir)}, progress, signal: new AbortController().signal, hubEndpoint: "", packageIndexUrl: "", environment: {} });`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await hanging.promise;
  await new Promise((resolve) => child.stdout.once("data", resolve));
  const waiting = Promise.withResolvers<void>();
  const second = obtainModelFile(url, {
    ...given,
    progress: {
      ...given.progress,
      note: (text) => (text.includes("another process") ? waiting.resolve() : undefined),
    },
  });
  await waiting.promise;
  assert.equal(server.requests.length, 1);
  assert.ok(!existsSync(join(given.modelsDir, "tiny.gguf")));
  child.kill("SIGKILL");
  await assertWhole(await second, given);
  assert.equal(server.requests[1]?.range, `bytes=${half}-`);
});
