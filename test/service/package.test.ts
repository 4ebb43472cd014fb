/**
 * The files that `npm pack` packs beside the compiled program: only what is needed, and every
 * document that messages and documents name. test/release/package.test.ts installs the package.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { globSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { bundledLibraries } from "../../tools/bundled-libraries.ts";

const root = path.join(import.meta.dirname, "../..");

interface Packed {
  files: { path: string }[];
}

/** Without the compiled program, which an earlier build may have left here. */
const packed = (() => {
  const args = ["pack", "--dry-run", "--json", "--ignore-scripts"];
  const [found]: Packed[] = JSON.parse(String(execFileSync("npm", args, { cwd: root, stdio: "pipe" })));
  return (found?.files ?? []).map((file) => file.path).filter((file) => !file.startsWith("dist/"));
})();

test("packs documents, examples, the miniature model and nothing else beside the program", () => {
  const documents = [
    "deploy/**",
    "examples/*",
    "docs/*.md",
    "docs/{api,decisions,operating,pictures}/**",
  ].flatMap((pattern) =>
    globSync(pattern, { cwd: root }).filter((file) => statSync(path.join(root, file)).isFile()),
  );
  assert.deepEqual(
    packed.toSorted(),
    [
      "ARCHITECTURE.md",
      "CHANGELOG.md",
      "CONTRIBUTING.md",
      "LICENSE",
      "README.md",
      "SECURITY.md",
      "inkwell.example.yaml",
      "models/miniature.gguf",
      "package.json",
      ...documents,
    ].toSorted(),
  );
});

test("packs every file of docs and deploy that its messages and documents name", () => {
  const sources = globSync("src/**/*.{ts,sql}", { cwd: root, exclude: ["src/web/**"] });
  const texts = packed.filter((file) => /\.(?:md|ya?ml|conf|cfg|service|timer)$/.test(file));
  assert.ok(sources.length + texts.length > 300, `${sources.length} sources, ${texts.length} texts`);
  const isPacked = (name: string) =>
    // A folder, or a decision that a comment names by its number alone.
    packed.some((file) => file === name || file.startsWith(`${name}/`) || file.startsWith(`${name}-`));
  let named = 0;
  for (const file of [...sources, ...texts]) {
    const text = readFileSync(path.join(root, file), "utf8");
    const paths = [...text.matchAll(/(?<![\w/.-])(?:docs|deploy)\/[\w./-]*\w/g)].map(([name]) => name);
    const linked = file.endsWith(".md") ? [...text.matchAll(/\]\((?!https?:|#)([^)#]+)/g)] : [];
    for (const [, target = ""] of linked) paths.push(path.join(path.dirname(file), target));
    // Sources, tests and measurements are in the repository alone.
    for (const name of paths.filter((each) => !/^(?:bench|src|test|tools)\//.test(each))) {
      named += 1;
      assert.ok(isPacked(name.replace(/\/$/, "")), `${file} names ${name}`);
    }
  }
  assert.ok(named > 300, `${named} names`);
});

test("the libraries in its pages are dependencies, or their licences come with the pages", () => {
  const { dependencies }: { dependencies: object } = JSON.parse(
    readFileSync(path.join(root, "package.json"), "utf8"),
  );
  const files = globSync(["src/web/**/*.{ts,tsx}", "tools/docs/browser/*.ts", "tools/docs/search-index.ts"], {
    cwd: root,
  });
  const imported = files.flatMap((file) =>
    [
      ...readFileSync(path.join(root, file), "utf8").matchAll(
        /^import (?!type )[^;"]* from "([^."/]+)[^"]*"/gm,
      ),
    ].map(([, name = ""]) => name),
  );
  const others = new Set(imported.filter((name) => !(name in dependencies)));
  assert.deepEqual([...others].toSorted(), bundledLibraries, "see tools/bundled-libraries.ts");
});
