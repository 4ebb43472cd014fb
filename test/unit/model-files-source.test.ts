/** Forms of a model's source, and the package index in pip's configuration. */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { OperatorError } from "../../src/errors.ts";
import { packageIndexUrlOf } from "../../src/model-files/pip-configuration.ts";
import { parseSource } from "../../src/model-files/source.ts";

const root = await mkdtemp(join(tmpdir(), "inkwell-source-"));
after(() => rm(root, { recursive: true, force: true }));

test("distinguishes the default, a path, a hub file and a URL", () => {
  assert.deepEqual(parseSource("default"), { kind: "default" });
  assert.deepEqual(parseSource("./models/a b.gguf"), { kind: "path", path: "./models/a b.gguf" });
  assert.deepEqual(parseSource("C:\\models\\a.GGUF"), { kind: "path", path: "C:\\models\\a.GGUF" });
  assert.deepEqual(parseSource("hf:Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf"), {
    kind: "hub",
    file: { repository: "Qwen/Qwen3-0.6B-GGUF", revision: "main", path: "Qwen3-0.6B-Q8_0.gguf" },
    fileName: "Qwen--Qwen3-0.6B-GGUF--Qwen3-0.6B-Q8_0.gguf",
  });
  const pinned = parseSource("hf:a/b@v1.0/dir/c d.gguf");
  assert.ok(pinned.kind === "hub");
  assert.deepEqual(pinned.file, { repository: "a/b", revision: "v1.0", path: "dir/c d.gguf" });
  assert.match(pinned.fileName, /^a--b--v1\.0--dir--c_d-[0-9a-f]{8}\.gguf$/);
  const address = parseSource("https://models.example/x/My%20Model.gguf?key=1");
  assert.ok(address.kind === "url");
  assert.match(address.fileName, /^My_Model-[0-9a-f]{8}\.gguf$/);
});

const nameOf = (text: string): string => {
  const source = parseSource(text);
  return source.kind === "url" || source.kind === "hub" ? source.fileName : "";
};

test("gives two URLs with the same ending two files, and one URL with two queries the same file", () => {
  assert.notEqual(nameOf("https://a.example/m.gguf"), nameOf("https://b.example/m.gguf"));
  assert.equal(nameOf("https://a.example/m.gguf?t=1"), nameOf("https://a.example/m.gguf?t=2"));
});

const commit = "0123456789abcdef0123456789abcdef01234567";

test("gives two hub files two file names, however similar they are", () => {
  const sources = [
    "hf:o/r/v2/f.gguf",
    "hf:o/r@v2/f.gguf",
    "hf:o/r--v2/f.gguf",
    "hf:o--r/v2/f.gguf",
    "hf:o/r/v2--f.gguf",
    "hf:o/r/a b.gguf",
    "hf:o/r/a_b.gguf",
    "hf:o/r/a+b.gguf",
    "hf:o/r-/b.gguf",
    "hf:o/r/-b.gguf",
    `hf:o/r/${commit}/f.gguf`,
    `hf:o/r@${commit}/f.gguf`,
  ];
  assert.equal(new Set(sources.map(nameOf)).size, sources.length, sources.map(nameOf).join("\n"));
  for (const source of sources) {
    assert.match(nameOf(source), /^[\w.-]+\.gguf$/);
    assert.equal(nameOf(source), nameOf(source));
  }
});

test("uses a name without a mark if it is unambiguous, so existing files are found", () => {
  assert.equal(nameOf("hf:o/r/q4/f.gguf"), "o--r--q4--f.gguf");
  assert.equal(nameOf("hf:o/r@main/q4/f.gguf"), "o--r--q4--f.gguf");
  assert.equal(nameOf(`hf:o/r@${commit}/f.gguf`), `o--r--${commit}--f.gguf`);
});

const refused: [text: string, message: RegExp][] = [
  ["", /not understood: write default/],
  ["model.bin", /not understood: write default/],
  ["defualt", /not understood: write default/],
  ["hf:owner/file.gguf", /write hf:owner\/repository\/file\.gguf/],
  ["hf:owner/repo/file.safetensors", /write hf:/],
  ["hf:owner/repo/../../x.gguf", /write hf:/],
  ["hf:owner/repo//x.gguf", /write hf:/],
  ["hf:owner/repo/big-00001-of-00003.gguf", /one part of a split model.*path of the first/],
  ["https://a.example/big-00002-of-00003.gguf", /one part of a split model/],
  ["https://a.example/index.html", /does not end in \.gguf/],
  ["https://", /not a complete URL/],
  ["https://host.example/100%.gguf", /^model source https:\/\/host\.example\/100%\.gguf .* write %25/],
  ["https://ann:100%@host.example/m.gguf", /^model source https:\/\/host\.example\/m\.gguf .* write %25/],
  ["ftp://a.example/m.gguf", /only https:\/\/ URLs/],
  ["https://ann:word@", /^model source https:\/\/\.\.\.@ is not a complete URL/],
  ["ftp://ann:word@a.example/m.gguf", /^model source ftp:\/\/\.\.\.@a\.example\/m\.gguf: only/],
  ["https://ann:word@a.example/big-00002-of-00003.gguf", /^model source https:\/\/a\.example\/big/],
];

for (const [text, message] of refused) {
  test(`refuses the source "${text}" and names the valid forms`, () => {
    assert.throws(
      () => parseSource(text),
      (error) => error instanceof OperatorError && message.test(error.message),
    );
  });
}

const withSecret: [text: string, shown: string][] = [
  ["https://ann:Zm9v/YmFy@a.example/m.gguf", "https://...@a.example/m.gguf is not a complete URL"],
  ["https://ann:Zm?v#Y@mFy@a.example/m.gguf", "https://...@a.example/m.gguf is not a complete URL"],
  ["https://ann:12/YmFy@a.example/m.bin", "https://...@a.example/m.bin does not end in .gguf"],
  ["https://ann:12/100%@a.example/100%.gguf", "https://...@a.example/100%.gguf has a %"],
  [
    "https://ann:12/YmFy@a.example/m-00002-of-00003.gguf",
    "https://...@a.example/m-00002-of-00003.gguf is one part",
  ],
  ["ftp://ann:Zm9v/YmFy@a.example/m.gguf", "ftp://...@a.example/m.gguf: only https:// URLs"],
  ["ftp://YmFy/Zm9v@a.example/m.gguf", "ftp://...@a.example/m.gguf: only https:// URLs"],
  ["https:/ann:YmFy@a.example/m.bin", "https:/...@a.example/m.bin is not understood"],
  ["https//ann:Zm9v/YmFy@a.example/m.bin", "https//...@a.example/m.bin is not understood"],
  ["//ann:YmFy@a.example/m", "...@a.example/m is not understood"],
  ["YmFy@a.example/m", "...@a.example/m is not understood"],
  ["a.example/m\nYmFy@a.example/m", "...@a.example/m is not understood"],
  ["hf:YmFy@owner/repo/m.gguf", "hf:...@owner/repo/m.gguf is not understood"],
  ["hf:ann:YmFy@owner/repo/m.gguf", "hf:...@owner/repo/m.gguf is not understood"],
  [
    "hf://ann:Zm9v/YmFy@hub.example/owner/repo/m.gguf",
    "hf://...@hub.example/owner/repo/m.gguf is not understood",
  ],
  // With the ending of a path, these would be looked up on the disk and shown in full.
  ["https:/ann:YmFy@a.example/m.gguf", "https:/...@a.example/m.gguf is not understood"],
  ["https//ann:YmFy@a.example/m.gguf", "https//...@a.example/m.gguf is not understood"],
  ["https:ann:YmFy@a.example/m.gguf", "https:...@a.example/m.gguf is not understood"],
  [" https://ann:YmFy@a.example/m.gguf", " https://...@a.example/m.gguf is not understood"],
  [" ftp://ann:YmFy@a.example/m.gguf", " ftp://...@a.example/m.gguf is not understood"],
];

for (const [text, shown] of withSecret) {
  test(`never repeats a user and password: ${JSON.stringify(text)}`, () => {
    assert.throws(
      () => parseSource(text),
      (error) => {
        assert.ok(error instanceof OperatorError, String(error));
        assert.ok(error.message.startsWith(`model source ${shown}`), error.message);
        assert.doesNotMatch(error.message, /ann|Zm|YmFy|mFy/);
        return true;
      },
    );
  });
}

test("shows the revision of a hub file, which is no password", () => {
  assert.throws(
    () => parseSource("hf:owner/repo@v2/m.bin"),
    /^OperatorError: model source hf:owner\/repo@v2\/m\.bin is/,
  );
  assert.throws(
    () => parseSource("hf:o/r@v2/m-00001-of-00003.gguf"),
    /^OperatorError: model source hf:o\/r@v2\/m-/,
  );
});

async function indexWith(
  files: Record<string, string>,
  environment: Record<string, string>,
  platform: NodeJS.Platform = "linux",
): Promise<string> {
  const home = await mkdtemp(join(root, "home-"));
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(home, path)), { recursive: true });
    await writeFile(join(home, path), text);
  }
  const inHome = Object.fromEntries(
    Object.entries(environment).map(([name, value]) => [name, value.replace("~", home)]),
  );
  return packageIndexUrlOf({ environment: { XDG_CONFIG_HOME: "", ...inHome }, home, platform });
}

const userFile = ".config/pip/pip.conf";

test("prefers the index of the environment to every file", async () => {
  const files = { [userFile]: "[global]\nindex-url = https://file.example/simple\n" };
  assert.equal(
    await indexWith(files, { PIP_INDEX_URL: "https://env.example/simple/" }),
    "https://env.example/simple",
  );
  assert.equal(await indexWith(files, {}), "https://file.example/simple");
});

test("prefers the section of the command to the global one, and ignores comments and other keys", async () => {
  const text =
    "[global]\r\n# index-url = https://no.example\r\nextra-index-url = https://no.example\r\nindex_url: https://global.example/simple\r\n";
  assert.equal(await indexWith({ [userFile]: text }, {}), "https://global.example/simple");
  assert.equal(
    await indexWith({ [userFile]: `${text}[download]\nindex-url=https://own.example/simple\n` }, {}),
    "https://own.example/simple",
  );
});

test("reads a named file, that of the virtual environment and the older path, in pip's order", async () => {
  const files = {
    "named.conf": "[global]\nindex-url = https://named.example\n",
    "venv/pip.conf": "[global]\nindex-url = https://venv.example\n",
    ".pip/pip.conf": "[global]\nindex-url = https://old.example\n",
  };
  assert.equal(
    await indexWith(files, { PIP_CONFIG_FILE: "~/named.conf", VIRTUAL_ENV: "~/venv" }),
    "https://named.example",
  );
  assert.equal(await indexWith(files, { VIRTUAL_ENV: "~/venv" }), "https://venv.example");
  assert.equal(await indexWith(files, {}), "https://old.example");
  assert.equal(
    await indexWith({ "Library/Application Support/pip/pip.conf": files["named.conf"] }, {}, "darwin"),
    "https://named.example",
  );
});

test("uses the public index without any configuration", async () => {
  assert.equal(await indexWith({}, { PIP_CONFIG_FILE: "/dev/null" }), "https://pypi.org/simple");
});
