/** Creation of folders. A folder that cannot be created is an error and never blocks the start. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { makeFolder } from "../../src/make-folder.ts";

const folder = mkdtempSync(path.join(tmpdir(), "inkwell-folder-"));
after(() => rmSync(folder, { recursive: true }));

test("creates a folder and its parents, and accepts an existing one", () => {
  const deep = path.join(folder, "a/b/c");
  makeFolder(deep);
  makeFolder(deep);
  assert.ok(statSync(deep).isDirectory());
  makeFolder("/");
  makeFolder(`${deep}/`);
});

test("reports a file in place of the folder and leaves it alone", () => {
  const file = path.join(folder, "file");
  writeFileSync(file, "mine");
  assert.throws(() => makeFolder(file), /EEXIST/);
  assert.throws(() => makeFolder(path.join(file, "below")), /ENOTDIR/);
  assert.ok(statSync(file).isFile());
});
