/** Every connection to another server is HTTP/1.1, also if the server offers HTTP/2. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createSecureServer } from "node:http2";
import path from "node:path";
import { test } from "node:test";
import { selfSigned } from "../fixtures/certificate.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { newFolder, startProgram } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";

test("servers of models, receivers of events, hubs and issuers are asked over HTTP/1.1", async () => {
  await using folder = await newFolder();
  await using other = await newFolder();
  const certified = selfSigned("localhost");
  const authority = path.join(folder.path, "authority.pem");
  writeFileSync(authority, certified.cert);
  const asked = new Map<string, string>();
  const server = createSecureServer({ ...certified, allowHTTP1: true }, (request, response) => {
    asked.set(`${request.url?.split("/")[1]}`, request.httpVersion);
    response.writeHead(500);
    response.end("{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  const url = `https://localhost:${address.port}`;
  writeFileSync(
    path.join(folder.path, "inkwell.yaml"),
    `models:
  far: { engine: upstream, url: "${url}/server/v1", model: m, price: { prompt: 1, completion: 1 } }
events:
  networks: ["127.0.0.0/8", "::1/128"]
  endpoints: { books: { url: "${url}/receiver", secret: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz" } }
sign_in: { issuer: "${url}/issuer", client_id: inkwell, client_secret: secret, operators: [{ domain: example.edu, role: owner }] }
operator: { url: "http://127.0.0.1:8081" }
`,
  );
  writeFileSync(
    path.join(other.path, "inkwell.yaml"),
    `models: { near: { engine: llama, source: "${url}/hub/model.gguf", price: { prompt: 1, completion: 1 } } }\n`,
  );
  const env = { NODE_EXTRA_CA_CERTS: authority };
  await using program = startProgram(folder.path, { env });
  // It tries the download again before it is up.
  await using _downloading = startProgram(other.path, { env });
  try {
    const { operatorUrl } = await program.up();
    const signIn = await fetch(`${operatorUrl}/admin/sign-in`, { method: "POST", headers: pageHeader });
    assert.equal(signIn.status, 503, await signIn.text());
    await until("all are asked", () => asked.size === 4);
    // Half of them look up names.
    if (process.platform === "linux") {
      const tasks = `/proc/${program.process.pid}/task`;
      const names = readdirSync(tasks).map((task) =>
        readFileSync(path.join(tasks, task, "comm"), "utf8").trim(),
      );
      assert.equal(names.filter((name) => name === "libuv-worker").length, 64, `${names}`);
    }
  } finally {
    server.close();
  }
  assert.deepEqual([...new Set(asked.values())], ["1.1"], JSON.stringify([...asked]));
});
