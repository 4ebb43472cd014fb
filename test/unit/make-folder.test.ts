/** Making folders, also where they cannot be made: that is an error, and never a start that hangs. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { makeFolder } from "../../src/make-folder.ts";

const folder = mkdtempSync(path.join(tmpdir(), "inkwell-folder-"));
after(() => rmSync(folder, { recursive: true }));

test("a folder is made with those above it, and may be there already", () => {
  const deep = path.join(folder, "a/b/c");
  makeFolder(deep);
  makeFolder(deep);
  assert.ok(statSync(deep).isDirectory());
  makeFolder("/");
  makeFolder(`${deep}/`);
});

test("where a file lies instead it is left, and said", () => {
  const file = path.join(folder, "file");
  writeFileSync(file, "mine");
  assert.throws(() => makeFolder(file), /EEXIST/);
  assert.throws(() => makeFolder(path.join(file, "below")), /ENOTDIR/);
  assert.ok(statSync(file).isFile());
});
