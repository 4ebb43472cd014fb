/** What a watched page reports: each kind of fault, on a page that has them all. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { visit } from "../fixtures/browser.ts";
import { launchChromium, noChromium } from "../fixtures/chromium.ts";
import { assertAccessible } from "../fixtures/console.ts";
import { until } from "../fixtures/until.ts";

const skip = noChromium ?? false;
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'";
const pages = new Map([
  ["/good", "<title>Good</title><p>Grüße, 1,234 credits"],
  ["/inline-script", "<title>x</title><script>document.title = 'ran'</script>"],
  ["/inline-style", "<title>x</title><p style='color: red'>red"],
  ["/foreign", "<title>x</title><img alt='' src='http://127.0.0.1:9/pixel'>"],
  ["/throws", "<title>x</title><script src='/throws.js'></script>"],
  ["/logs", "<title>x</title><script src='/logs.js'></script>"],
  ["/missing", "<title>x</title><script src='/absent.js'></script>"],
  ["/cut", "<title>x</title><script src='/cut.js'></script>"],
  [
    "/fading",
    "<!doctype html><html lang=en><title>x</title><link rel=stylesheet href=/fade.css><main><h1>Fading</h1><p>in</p></main>",
  ],
  [
    "/fade.css",
    "main { animation: fade 1000s } h1 { animation: turn 1s infinite } @keyframes fade { from { opacity: 0.1 } } @keyframes turn { to { rotate: 1turn } }",
  ],
  ["/throws.js", "throw new Error('of the page')"],
  ["/logs.js", "console.error('of the log')"],
]);

const opened = new AsyncDisposableStack();
let browser: Browser;
let origin: string;

before(async () => {
  if (noChromium !== null) return;
  const server = createServer((request, response) => {
    const path = request.url ?? "";
    if (path === "/cut.js") return void request.socket.destroy();
    const text = pages.get(path);
    const kinds = [
      [".js", "javascript"],
      [".css", "css"],
    ] as const;
    const [, kind = "html"] = kinds.find(([end]) => path.endsWith(end)) ?? [];
    const type = `text/${kind}; charset=utf-8`;
    response.writeHead(text === undefined && path !== "/favicon.ico" ? 404 : 200, {
      "content-type": type,
      ...(path === "/foreign" ? {} : { "content-security-policy": policy }),
    });
    response.end(text);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  opened.defer(() => new Promise<void>((resolve) => void server.close(() => resolve())));
  opened.defer(() => server.closeAllConnections());
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  origin = `http://127.0.0.1:${address.port}`;
  browser = opened.use(await launchChromium()).browser;
});
after(() => opened.disposeAsync());

const faults: [string, ...RegExp[]][] = [
  ["/inline-script", /^error: .*inline script violates.*Content Security Policy/s],
  ["/inline-style", /^error: .*inline style violates.*Content Security Policy/s],
  ["/foreign", /^foreign: http:\/\/127\.0\.0\.1:9\/pixel$/, /^failed GET http:\/\/127/],
  ["/throws", /^uncaught: of the page$/],
  ["/logs", /^error: of the log$/],
  ["/missing", /^404 GET \/absent\.js$/],
  ["/cut", /^failed GET \/cut\.js$/],
];

for (const [path, ...problems] of faults) {
  test(`a page reports the fault of ${path}`, { skip }, async () => {
    await using watched = await visit(browser, [origin]);
    await watched.page.goto(origin + path);
    await until(`problems like ${problems.join(", ")}`, () =>
      problems.every((pattern) => watched.problems().some((problem) => pattern.test(problem))),
    );
    assert.throws(() => watched.assertExpected(), /problems of the page/);
    watched.expects(...problems);
    watched.assertExpected();
  });
}

test("a test fails at once if the renderer of its page crashes", { skip }, async () => {
  await using watched = await visit(browser, [origin]);
  await watched.page.goto(`${origin}/good`);
  // Without its renderer, the page never answers.
  watched.page.goto("chrome://crash").catch(() => {});
  await assert.rejects(watched.failed, /^Error: The renderer of Chromium crashed\.$/);
  assert.deepEqual(watched.problems(), ["The renderer of Chromium crashed."]);
});

test("colours are judged as they are when all has faded in", { skip }, async () => {
  await using watched = await visit(browser, [origin]);
  await watched.page.goto(`${origin}/fading`);
  await assertAccessible(watched.page);
});

test("a page without faults passes, with the fonts of the package", { skip }, async () => {
  await using good = await visit(browser, [origin]);
  await good.page.goto(`${origin}/good`);
  good.assertExpected();
  const size = await good.page.evaluate("document.querySelector('p').getClientRects()[0].height");
  assert.ok(Number(size) > 10, `text is ${size} px high`);
  good.expects("404 GET /never");
  assert.throws(() => good.assertExpected(), /announced failures that did not occur/);
});
