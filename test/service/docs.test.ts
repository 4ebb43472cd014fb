/**
 * The documents as pages: `npm run docs` makes a page of each, links lead somewhere, the search
 * finds, and nothing names another host. test/release/docs.test.ts opens them in a browser.
 */
import assert from "node:assert/strict";
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { documents } from "../../src/app/web-bundle.ts";
import { type Searched, searchOf } from "../../tools/docs/search-index.ts";
import { buildPages, documentFiles, pageOf } from "../../tools/docs/site.ts";
import { shownBy } from "../fixtures/checkout-programs.ts";
import { startOperator } from "../fixtures/operator.ts";
import { startService } from "../fixtures/service.ts";

const folder = mkdtempSync(path.join(tmpdir(), "inkwell-docs-site-"));
const textOf = (page: string) => readFileSync(path.join(folder, page), "utf8");

before(async () => {
  assert.match(await shownBy("tools/docs.ts", folder), /index\.html$/m);
});
after(() => rmSync(folder, { recursive: true }));

test("each document has a page, and each operation of both APIs a section", () => {
  const files = documentFiles();
  assert.ok(files.length > 100, `${files.length} documents`);
  for (const file of files) assert.match(textOf(pageOf(file)), /<h1 id="/, file);
  assert.equal(pageOf("docs/operating/README.md"), "operating/index.html");
  assert.match(textOf("api/operator/accounts.html"), /<h2 id="open-an-account">Open an account<\/h2>/);
  assert.match(textOf("api/portal/keys.html"), /<code>POST \/api\/keys<\/code>/);
});

test("links lead to pages and headings that are there", () => {
  const pages = globSync("**/*.html", { cwd: folder });
  const hrefs = new Map(
    pages.map((page) => [
      page,
      [...textOf(page).matchAll(/\b(?:href|src)="([^"]*)"/g)].map(([, to = ""]) => to),
    ]),
  );
  const ids = new Map(
    pages.map((page) => [page, new Set([...textOf(page).matchAll(/\bid="([^"]+)"/g)].map(([, id]) => id))]),
  );
  const files = new Set(globSync("**/*.*", { cwd: folder }));
  let links = 0;
  for (const [page, targets] of hrefs) {
    for (const target of targets.filter((each) => !/^(?:https?|mailto):/.test(each))) {
      const [name = "", anchor] = target.split("#");
      const file = name === "" ? page : path.join(path.dirname(page), name);
      assert.ok(files.has(file), `${page} links to ${target}`);
      if (anchor !== undefined) assert.ok(ids.get(file)?.has(anchor), `${page} links to ${target}`);
      links += 1;
    }
  }
  assert.ok(links > 5000, `${links} links`);
});

test("no page, style or script names a file of another host", () => {
  for (const file of globSync("**/*.html", { cwd: folder })) {
    assert.doesNotMatch(textOf(file), /<(?!a )\w+ [^>]*(?:src|href|srcset|data)="(?:https?:)?\/\//, file);
    // The policy of the operator listener allows none within a page.
    assert.doesNotMatch(textOf(file), /<script>|<style|<[^>]+ style=|<[^>]+ on\w+=/, file);
  }
  assert.doesNotMatch(textOf("assets/style.css"), /url\(|@import/);
  // MiniSearch has a method `fetch`.
  const asking = /(?<![.}])fetch\(|XMLHttpRequest|EventSource|WebSocket|import\(|https?:/;
  assert.equal(asking.exec(textOf("assets/search.js"))?.[0], undefined);
});

test("the search finds words, their beginnings and misspelled ones", () => {
  const data = textOf("assets/search-data.js");
  const sections: Searched[] = JSON.parse(data.slice("window.searched=".length, data.lastIndexOf(";")));
  const search = searchOf(sections);
  const found = (words: string) => search(words).map(({ id }) => id);
  assert.equal(found("credits")[0], "operating/accounts.html#credits");
  assert.ok(found("trusted_prox").includes("operating/reverse-proxy.html"));
  assert.ok(found("invitatoins").some((id) => id.startsWith("operating/invitations.html")));
  assert.deepEqual(found("xylophone"), []);
});

test("a link to what is not there ends the build", async () => {
  const texts = new Map([
    ["README.md", "# One\n\n[a](docs/gone.md) [b](#nowhere) [c](docs/two.md#no-heading) [d](src/app.ts)"],
    ["docs/two.md", "# Two\n\n[one](../README.md#one)"],
  ]);
  const broken = path.join(folder, "broken");
  await assert.rejects(buildPages(broken, texts), (error: Error) => {
    const ofLinks = error.message.split("\n").filter((line) => !line.startsWith("the sidebar"));
    assert.deepEqual(
      ofLinks,
      ["docs/gone.md", "#nowhere", "docs/two.md#no-heading"].map(
        (target) => `README.md links to ${target}, which does not exist`,
      ),
    );
    return true;
  });
  assert.ok(!existsSync(broken), "nothing is written");
});

test("the operator listener serves them without a session, and no other file", async () => {
  await using service = await startService();
  await using operator = await startOperator(service, [], { readDocuments: documents(folder) });
  const get = (route: string) => fetch(operator.url + route, { redirect: "manual" });
  const first = await get("/docs");
  assert.deepEqual([first.status, first.headers.get("location")], [302, "/docs/"]);
  for (const [route, type] of [
    ["/docs/", "text/html; charset=utf-8"],
    ["/docs/operating/", "text/html; charset=utf-8"],
    ["/docs/operating/plans.html", "text/html; charset=utf-8"],
    ["/docs/assets/search.js", "text/javascript; charset=utf-8"],
    ["/docs/pictures/overview.png", "image/png"],
  ] as const) {
    const response = await get(route);
    assert.deepEqual([response.status, response.headers.get("content-type")], [200, type], route);
    assert.match(
      response.headers.get("content-security-policy") ?? "",
      /^default-src 'none'; script-src 'self'/,
    );
  }
  for (const route of [
    "/docs/operating",
    "/docs/gone.html",
    "/docs/..%2fpackage.json",
    "/docs/%2e%2e/package.json",
  ])
    assert.ok([401, 404].includes((await get(route)).status), route);
});

test("without pages the listener says how to make them", async () => {
  await using service = await startService();
  const readDocuments = documents(path.join(folder, "gone"));
  await using operator = await startOperator(service, [], { readDocuments });
  const response = await fetch(`${operator.url}/docs/`);
  assert.equal(response.status, 404);
  assert.match(await response.text(), /In a checkout, npm run docs makes them\./);
});
