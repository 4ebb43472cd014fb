/** The pages of the console over HTTP: what a browser gets before it signs in. */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { buildWeb, bundleWeb, webAppNames, webFiles } from "../../src/app/web-bundle.ts";
import { startOperator } from "../fixtures/operator.ts";
import { startService } from "../fixtures/service.ts";

const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const compressedBytesMax = 120_000;

test("every path below /console is the same page, without a token, under the strict policy", async () => {
  await using service = await startService();
  await using operator = await startOperator(service);
  const bodies = new Set<string>();
  for (const path of ["/console", "/console/", "/console/accounts/ada", "/console/a/b/c?x=1"]) {
    const response = await fetch(operator.url + path);
    assert.equal(response.status, 200, path);
    assert.equal(response.headers.get("content-security-policy"), policy);
    assert.equal(response.headers.get("x-content-type-options"), "nosniff");
    assert.equal(response.headers.get("referrer-policy"), "no-referrer");
    assert.equal(response.headers.get("cache-control"), "no-cache");
    assert.match(response.headers.get("content-type") ?? "", /^text\/html/);
    bodies.add(await response.text());
  }
  assert.equal(bodies.size, 1);
  const [index = ""] = bodies;
  assert.doesNotMatch(index, /<script>|<style|style=|https?:/);
  const assets = [...index.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path = ""]) => path);
  assert.equal(assets.length, 4);
  for (const path of assets) {
    const response = await fetch(operator.url + path);
    assert.equal(response.status, 200, path);
    assert.equal(response.headers.get("cache-control"), "public, max-age=31536000, immutable");
    assert.equal(response.headers.get("content-security-policy"), policy);
    assert.ok((await response.text()).length > 0);
  }
});

test("the page of the console has the command of this installation, and the portal's has none", async () => {
  const [ofConsole, ofPortal] = await Promise.all(
    webAppNames.map(async (app) => (await webFiles(app)()).index.body.toString()),
  );
  assert.match(ofConsole ?? "", /<div id="root" .* data-command="\.\/inkwell"><\/div>/);
  assert.doesNotMatch(ofPortal ?? "", /data-command/);
});

test("assets that do not exist are refused, and no path leads out of the bundle", async () => {
  await using service = await startService();
  await using operator = await startOperator(service);
  for (const path of ["/console/assets/main.js", "/console/assets/..%2f..%2fpackage.json"]) {
    assert.equal((await fetch(operator.url + path)).status, 404, path);
  }
});

test("pages are compressed for clients that accept it", async () => {
  await using service = await startService();
  await using operator = await startOperator(service);
  const codingFor = (accepted: string | undefined) =>
    new Promise<string | undefined>((resolve, reject) => {
      const headers = accepted === undefined ? {} : { "accept-encoding": accepted };
      request(`${operator.url}/console`, { headers }, (response) => {
        response.resume();
        resolve(response.headers["content-encoding"]);
      })
        .on("error", reject)
        .end();
    });
  assert.equal(await codingFor(undefined), undefined);
  assert.equal(await codingFor("br, gzip"), "gzip");
  assert.equal(await codingFor("gzip;q=0.5"), "gzip");
  assert.equal(await codingFor("gzip;q=0"), undefined);
  assert.equal(await codingFor("identity"), undefined);
});

for (const app of webAppNames) {
  test(`all files of the ${app} together have less than 120 kB compressed`, async () => {
    const files = await bundleWeb(app);
    const bytes = files.reduce((sum, { content }) => sum + gzipSync(content).length, 0);
    assert.ok(bytes < compressedBytesMax, `${bytes} bytes`);
  });
}

test("a package has the bundles, and the license of the font beside them", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inkwell-web-"));
  try {
    await buildWeb(join(folder, "web"));
    assert.ok(existsSync(join(folder, "web/inter.license")));
    const { assets } = await webFiles("portal", join(folder, "web"))();
    const font = [...assets].find(([name]) => name.startsWith("inter-"))?.[1];
    assert.equal(font?.contentType, "font/woff2");
    assert.equal(font?.body.toString("latin1", 0, 4), "wOF2");
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("a bundle that is missing is named with its remedy, and read once it is there", async () => {
  const folder = mkdtempSync(join(tmpdir(), "inkwell-console-"));
  try {
    for (const name of ["console", "shared"]) mkdirSync(join(folder, name));
    const read = webFiles("console", folder);
    await assert.rejects(read(), /pages of the console cannot be read.*npm run build/s);
    writeFileSync(join(folder, "console/main.tsx"), 'document.title = "one";');
    writeFileSync(join(folder, "shared/style.css"), "body { margin: 0 }");
    writeFileSync(join(folder, "shared/icon.svg"), "<svg/>");
    const first = await read();
    assert.equal(await read(), first);
    assert.equal(first.assets.size, 3);
    writeFileSync(join(folder, "console/main.tsx"), 'document.title = "two";');
    utimesSync(join(folder, "console/main.tsx"), new Date(), new Date(Date.now() + 5000));
    const second = await read();
    assert.notDeepEqual([...second.assets.keys()], [...first.assets.keys()]);
    writeFileSync(join(folder, "console/main.tsx"), "not TypeScript(");
    await assert.rejects(read(), /pages of the console cannot be read/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
