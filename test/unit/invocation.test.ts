/** How commands in messages are written, so that a reader can paste them. */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { programAt, shownPath } from "../../src/invocation.ts";
import { shellWordOf } from "../../src/shell.ts";

const folder = mkdtempSync(path.join(tmpdir(), "inkwell invocation "));
after(() => rmSync(folder, { recursive: true }));

/** Returns the module of a package that is installed below a folder. */
function installed(below: string, isLinked: boolean): string {
  const packages = path.join(below, "node_modules");
  mkdirSync(path.join(packages, ".bin"), { recursive: true });
  if (isLinked) writeFileSync(path.join(packages, ".bin", "inkwell"), "");
  return path.join(packages, "inkwell", "dist", "invocation.js");
}

test("names the program as a person calls it", () => {
  const local = path.join(folder, "project");
  const module = installed(local, true);
  for (const [what, of, cwd, program] of [
    ["in a checkout", "/home/ada/inkwell/src/invocation.ts", "/home/ada/inkwell", "./inkwell"],
    ["elsewhere", "/home/ada/ai server/src/invocation.ts", "/etc", "'/home/ada/ai server/inkwell'"],
    ["in a container", "/app/dist/invocation.js", "/etc/inkwell", "inkwell"],
    ["globally", installed(path.join(folder, "global", "lib"), false), local, "inkwell"],
    ["in a folder", module, local, "npx inkwell"],
    ["below this folder", module, path.join(local, "data"), "npx inkwell"],
    ["elsewhere", module, "/etc", `npx --prefix '${local}' inkwell`],
  ] as const) {
    assert.equal(programAt(of, cwd), program, what);
  }
});

test("quotes a path for a shell if necessary, and shortens one below the present folder", () => {
  assert.equal(shellWordOf("/srv/data/first-key"), "/srv/data/first-key");
  assert.equal(shellWordOf("/srv/ada's data"), "'/srv/ada'\\''s data'");
  assert.equal(shownPath("/srv", "/srv/data/first-key"), path.join("data", "first-key"));
  assert.equal(shownPath("/etc/inkwell", "/data/first-key"), "/data/first-key");
});
