/** Downloads through a proxy, such as that of a company with its own TLS authority. */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createProxy } from "node:http";
import { createServer } from "node:https";
import { connect, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { OperatorError } from "../../src/errors.ts";
import { type ModelFileOptions, obtainModelFile } from "../../src/model-files/model-files.ts";
import { proxiesOf } from "../../src/model-files/proxies.ts";
import { Transport } from "../../src/model-files/transport.ts";
import { miniaturePath } from "../../tools/make-miniature.ts";
import { selfSigned } from "../fixtures/certificate.ts";
import { minute } from "../fixtures/times.ts";

const root = mkdtempSync(join(tmpdir(), "inkwell-proxy-"));
const certified = selfSigned("localhost");
const content = readFileSync(miniaturePath);

// Where OpenSSL finds what this machine trusts; it is read at the first fetch.
const authorities = join(root, "authorities.pem");
writeFileSync(authorities, certified.cert);
process.env.SSL_CERT_FILE = authorities;

const open = new Set<Socket>();
const asked: string[] = [];
const host = createServer(certified, (_request, response) => response.end(content));
const proxy = createProxy((request, response) => {
  asked.push(request.url ?? "");
  response.end(content);
});
proxy.on("connect", (request, client: Socket, head) => {
  asked.push(`${request.url} ${request.headers["proxy-authorization"] ?? ""}`.trim());
  const [name = "", port] = (request.url ?? "").split(":");
  const target = connect(Number(port), name, () => {
    client.write("HTTP/1.1 200 OK\r\n\r\n");
    target.write(head);
    client.pipe(target).pipe(client);
  });
  for (const socket of [client, target]) {
    open.add(socket);
    socket.on("error", () => socket.destroy());
  }
});

const listening = async (server: Server): Promise<number> => {
  await new Promise<void>((resolve) => server.listen(0, "localhost", resolve));
  const address = server.address();
  assert.ok(address !== null && typeof address !== "string");
  return address.port;
};
let hostPort = 0;
let proxyPort = 0;
before(async () => {
  hostPort = await listening(host);
  proxyPort = await listening(proxy);
});
after(() => {
  for (const socket of open) socket.destroy();
  host.close();
  proxy.close();
  rmSync(root, { recursive: true });
});

function fetched(address: string, environment: Record<string, string>, waitMs = minute) {
  asked.length = 0;
  const options: ModelFileOptions = {
    hubEndpoint: "http://127.0.0.1:9",
    packageIndexUrl: "http://127.0.0.1:9/simple",
    modelsDir: mkdtempSync(join(root, "models-")),
    progress: { note: () => {}, received: () => {} },
    signal: new AbortController().signal,
    timeouts: { connectMs: minute, headersMs: waitMs, bodyIdleMs: minute },
    backoffMs: 1,
    environment,
  };
  return obtainModelFile(address, options);
}

test("trusts the system's certificates behind a proxy too", async () => {
  const obtained = await fetched(`https://localhost:${hostPort}/m.gguf`, {
    HTTPS_PROXY: `http://localhost:${proxyPort}`,
  });
  assert.ok(obtained.found, JSON.stringify(obtained));
  assert.ok(content.equals(readFileSync(obtained.path)));
  assert.deepEqual(asked, [`localhost:${hostPort}`]);
});

test("accepts a proxy without a scheme and with a user, and bypasses it for NO_PROXY", async () => {
  const https_proxy = `ink:w%40ll@localhost:${proxyPort}`;
  const address = `https://localhost:${hostPort}/m.gguf`;
  assert.ok((await fetched(address, { https_proxy })).found);
  assert.deepEqual(asked, [`localhost:${hostPort} Basic ${btoa("ink:w@ll")}`]);
  assert.ok((await fetched(address, { https_proxy, NO_PROXY: "localhost" })).found);
  assert.deepEqual(asked, []);
  assert.ok((await fetched("http://hub.example/m.gguf", { HTTP_PROXY: `localhost:${proxyPort}` })).found);
  assert.deepEqual(asked, ["http://hub.example/m.gguf"]);
});

test("uses no proxy for a scheme whose variable is empty", async () => {
  const named = `http://localhost:${proxyPort}`;
  const address = `https://localhost:${hostPort}/m.gguf`;
  assert.ok((await fetched(address, { HTTPS_PROXY: "", HTTP_PROXY: named })).found);
  assert.deepEqual(asked, []);
  assert.ok((await fetched("http://hub.example/m.gguf", { HTTPS_PROXY: "", HTTP_PROXY: named })).found);
  assert.deepEqual(asked, ["http://hub.example/m.gguf"]);
  assert.ok((await fetched(address, { HTTPS_PROXY: named, HTTP_PROXY: "" })).found);
  assert.deepEqual(asked, [`localhost:${hostPort}`]);
});

test("sends no request after close, for either scheme", async () => {
  const transport = new Transport(proxiesOf({}));
  await transport.close();
  for (const address of [`https://localhost:${hostPort}/`, `http://localhost:${proxyPort}/`]) {
    await assert.rejects(
      transport.get(new URL(address), {}, [], new AbortController().signal),
      /UND_ERR_DESTROYED/,
    );
  }
});

for (const scheme of ["https", "http"]) {
  test(`gives up a silent proxy to a URL with ${scheme}`, async () => {
    const sockets = new Set<Socket>();
    const silent = createProxy(() => {})
      .on("connection", (socket) => sockets.add(socket))
      .on("connect", () => {});
    try {
      const HTTP_PROXY = `http://localhost:${await listening(silent)}`;
      const obtained = await fetched(`${scheme}://hub.example/m.gguf`, { HTTP_PROXY }, 100);
      assert.ok(!obtained.found);
      assert.equal(obtained.attempts[0]?.reason, "hub.example does not answer (5 times)");
    } finally {
      for (const socket of sockets) socket.destroy();
      silent.close();
    }
  });
}

describe("proxy settings", () => {
  test("prefer lower case, use HTTP_PROXY for HTTPS too, and treat an empty value as no proxy", () => {
    const HTTP_PROXY = "http://one.example:3128";
    const https_proxy = "http://two.example";
    assert.deepEqual(proxiesOf({ HTTP_PROXY, NO_PROXY: "a, b" }), {
      http: HTTP_PROXY,
      https: HTTP_PROXY,
      none: "a, b",
    });
    assert.equal(proxiesOf({ HTTP_PROXY, HTTPS_PROXY: HTTP_PROXY, https_proxy }).https, https_proxy);
    assert.deepEqual(proxiesOf({ HTTP_PROXY: "" }), { http: "", https: "", none: "" });
    assert.deepEqual(proxiesOf({ HTTP_PROXY, HTTPS_PROXY: " " }), { http: HTTP_PROXY, https: "", none: "" });
  });

  test("accept a slash after the port", () => {
    for (const HTTP_PROXY of ["http://proxy.example:3128/", "https://proxy.example/"]) {
      assert.equal(proxiesOf({ HTTP_PROXY }).http, HTTP_PROXY);
    }
  });

  const wrong = ["http://", "http://ink:secret@", "ink:secret@", "ink:secret@a b:80", "10.0.0.1:port"];
  const foreign = ["ftp://", "socks5://", "socks5h://", "socks://"].map(
    (scheme) => `${scheme}ink:secret@proxy.example`,
  );
  const withMore = ["/pac", "/?secret", "#secret"].map((more) => `http://proxy.example:3128${more}`);
  for (const written of [...wrong, ...foreign, ...withMore, "http://ink:100%@proxy.example"]) {
    test(`refuse, without showing the value: ${written}`, async () => {
      for (const name of ["HTTPS_PROXY", "http_proxy"]) {
        await assert.rejects(fetched("https://hub.example/m.gguf", { [name]: written }), (error) => {
          assert.ok(error instanceof OperatorError, String(error));
          assert.match(
            error.message,
            new RegExp(`^${name} is not the URL of an HTTP proxy: write it as http:`),
          );
          assert.doesNotMatch(error.message, /secret|100%@|pac/);
          return true;
        });
      }
    });
  }
});
