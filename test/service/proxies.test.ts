/**
 * The proxies of deploy/nginx-tls.conf and deploy/Caddyfile in front of the program, over TLS:
 * streams and their ends pass at once, people sign in, and each host name has its own pages.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import path from "node:path";
import { text as textOfStream } from "node:stream/consumers";
import { test } from "node:test";
import { selfSigned } from "../fixtures/certificate.ts";
import { missing, newFolder as newDeployFolder, nginxArguments, textOf } from "../fixtures/deploy.ts";
import { startInside } from "../fixtures/inner-program.ts";
import { fieldsOf } from "../fixtures/operator.ts";
import { pageHeader } from "../fixtures/page-header.ts";
import { freePort, newFolder } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { done, finish, first, text, usage } from "../fixtures/upstream-events.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

const names = ["api.example.edu", "portal.example.edu", "console.example.edu"] as const;
const [api, portal, console] = names;
const hsts = "max-age=31536000";

/** Writes the configuration of a proxy into its folder. Returns the command that runs it. */
type Configure = (folder: string, port: number, plainPort: number, text: string) => string[];

const proxies: Record<string, { file: string; program: string[]; configure: Configure }> = {
  nginx: {
    file: "deploy/nginx-tls.conf",
    program: ["nginx", "-v"],
    configure(folder, port, plainPort, configuration) {
      const sites = configuration
        .replaceAll("listen 443 ", `listen 127.0.0.1:${port} `)
        .replace("listen 80;", `listen 127.0.0.1:${plainPort};`);
      return ["nginx", ...nginxArguments(folder, sites)];
    },
  },
  Caddy: {
    file: "deploy/Caddyfile",
    program: ["caddy", "version"],
    configure(folder, port, plainPort, configuration) {
      const file = path.join(folder, "Caddyfile");
      const options = `admin off\n\thttps_port ${port}\n\thttp_port ${plainPort}\n\tdefault_bind 127.0.0.1\n`;
      writeFileSync(
        file,
        configuration
          .replace(/^\{\n/m, `{\n\t${options}`)
          .replaceAll("\timport always\n", `\timport always\n\ttls ${folder}/cert.pem ${folder}/key.pem\n`),
      );
      return ["caddy", "run", "--config", file, "--adapter", "caddyfile"];
    },
  },
};

interface Ask {
  method?: string;
  headers?: Record<string, string>;
  body?: object;
}

/** Sends a request for the host to the proxy, from another address than the proxy's. */
async function ask(port: number, host: string, route: string, options: Ask = {}): Promise<IncomingMessage> {
  const { method = "GET", headers = {}, body } = options;
  const sent = request({
    host: "127.0.0.1",
    localAddress: "127.0.0.2",
    port,
    servername: host,
    path: route,
    method,
    agent: false,
    rejectUnauthorized: false,
    headers: { host, "content-type": "application/json", ...headers },
  });
  sent.end(body === undefined ? undefined : JSON.stringify(body));
  const [response]: IncomingMessage[] = await once(sent, "response");
  assert.ok(response !== undefined);
  return response;
}

for (const [name, { file, program, configure }] of Object.entries(proxies)) {
  const [command = "", ...args] = program;
  test(`${name} with ${file} serves API, portal and console over TLS`, {
    skip: missing(command, ...args),
  }, async () => {
    await using upstream = await startUpstream();
    const goOn = Promise.withResolvers<void>();
    upstream.play = async (call) => {
      await call.send(first, text("Hello"));
      await Promise.race([goOn.promise, call.closed]);
      if (call.isClosed) return;
      await call.stream(text(" world"), finish(), usage(5, 2), done);
    };
    await using folder = await newFolder();
    configureUpstream(
      folder.path,
      upstream,
      `listen: { url: "https://${api}" }
portal: { url: "https://${portal}" }
operator: { url: "https://${console}" }
limits: { trusted_proxies: [127.0.0.1] }
`,
    );
    const ports = { 8080: await freePort(), 8081: await freePort(), 8082: await freePort() };
    await using service = startInside(folder.path, {
      env: {
        INKWELL_PORT: `${ports[8080]}`,
        INKWELL_OPERATOR_PORT: `${ports[8081]}`,
        INKWELL_PORTAL_PORT: `${ports[8082]}`,
      },
    });
    const { key, operatorUrl } = await service.up();
    assert.ok(key !== null);

    const own = newDeployFolder();
    const { cert, key: certificateKey } = selfSigned(...names);
    writeFileSync(path.join(own, "cert.pem"), cert);
    writeFileSync(path.join(own, "key.pem"), certificateKey);
    const [port, plainPort] = [await freePort(), await freePort()];
    const pointed = textOf(file).replaceAll(
      /127\.0\.0\.1:(808[012])/g,
      (_, given) => `127.0.0.1:${Object.entries(ports).find(([each]) => each === given)?.[1]}`,
    );
    const [proxyProgram = "", ...proxyArgs] = configure(own, port, plainPort, pointed);
    const proxy = spawn(proxyProgram, proxyArgs, {
      env: { PATH: process.env.PATH, HOME: own },
      stdio: ["ignore", "ignore", "pipe"],
    });
    let said = "";
    proxy.stderr.setEncoding("utf8").on("data", (part: string) => {
      said += part;
    });
    const ended = once(proxy, "close");
    try {
      await until("the proxy answers", async () => {
        assert.equal(proxy.exitCode, null, said);
        return await ask(port, api, "/v1/models").then(
          (response) => response.resume().statusCode === 401,
          () => false,
        );
      });

      // Plain http leads to https, and to no listener.
      const plain = await fetch(`http://127.0.0.1:${plainPort}/`, { redirect: "manual" });
      assert.ok([301, 308].includes(plain.status), `${plain.status}`);

      const chat = {
        method: "POST",
        headers: { authorization: `Bearer ${key}` },
        body: {
          model: "smollm2-135m-instruct",
          stream: true,
          messages: [{ role: "user", content: "What is ink?" }],
        },
      };
      const begun = await ask(port, api, "/v1/chat/completions", chat);
      assert.equal(begun.statusCode, 200);
      assert.equal(begun.headers["strict-transport-security"], hsts);
      let received = "";
      begun.setEncoding("utf8").on("data", (part: string) => {
        received += part;
      });
      // The rest is not generated before this has arrived.
      await until("the first text arrives", () => received.includes('"Hello"'));
      assert.doesNotMatch(received, /world/);

      const left = await ask(port, api, "/v1/chat/completions", chat);
      await once(left, "data");
      const call = upstream.calls[1];
      assert.ok(call !== undefined && !call.isClosed);
      left.destroy();
      await call.closed;
      goOn.resolve();
      await until("the first answer ends", () => received.includes("data: [DONE]"));

      // Almost as large as Inkwell accepts. Inkwell refuses it for its content.
      const large = { ...chat, body: { ...chat.body, messages: "x".repeat(4_100_000) } };
      const refused = await ask(port, api, "/v1/chat/completions", large);
      assert.equal(refused.statusCode, 400);
      assert.match(await textOfStream(refused), /"param":"messages"/);

      const start = await ask(port, portal, "/");
      assert.deepEqual([start.statusCode, start.headers["strict-transport-security"]], [200, hsts]);
      assert.match(await textOfStream(start), /<title>Inkwell<\/title>/);
      const page = { ...pageHeader, origin: `https://${portal}` };
      const signedIn = await ask(port, portal, "/api/session", {
        method: "POST",
        headers: page,
        body: { key },
      });
      assert.equal(signedIn.resume().statusCode, 200);
      const [cookie = ""] = signedIn.headers["set-cookie"] ?? [];
      assert.match(cookie, /^__Host-.*; Secure/);
      const account = await ask(port, portal, "/api/account", {
        headers: { ...page, cookie: cookie.split(";")[0] ?? "" },
      });
      assert.equal(JSON.parse(await textOfStream(account)).public_url, `https://${api}`);

      // Somebody of a class joins, makes a key and asks, all over TLS.
      const token = readFileSync(path.join(folder.path, "data", "operator-token"), "utf8").trim();
      const made = await fetch(`${operatorUrl}/admin/links`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({
          operation_id: "l",
          name: "C",
          plan: "starter",
          seats: 1,
          ends_at: "2999-01-01",
        }),
      });
      const { link } = fieldsOf(await made.json());
      const [portalUrl, code] = String(link).split("/#join=");
      assert.equal(portalUrl, `https://${portal}`);
      const join = { code, join_id: "a".repeat(22), name: "Ada" };
      const joined = await ask(port, portal, "/api/session", {
        method: "POST",
        headers: page,
        body: { join },
      });
      assert.equal(joined.resume().statusCode, 200);
      const [seat = ""] = joined.headers["set-cookie"] ?? [];
      const issued = await ask(port, portal, "/api/keys", {
        method: "POST",
        headers: { ...page, cookie: seat.split(";")[0] ?? "" },
        body: { operation_id: "k", name: "laptop" },
      });
      const laptop = fieldsOf(JSON.parse(await textOfStream(issued)));
      const headers = { authorization: `Bearer ${String(laptop.key)}` };
      const answer = await ask(port, api, "/v1/chat/completions", { ...chat, headers });
      assert.match(await textOfStream(answer), /data: \[DONE\]/);

      const consolePage = await ask(port, console, "/console");
      assert.equal(consolePage.headers["strict-transport-security"], hsts);
      assert.match(await textOfStream(consolePage), /<title>Inkwell console<\/title>/);
      for (const other of [api, portal]) {
        for (const route of ["/console", "/admin/accounts"]) {
          const response = await textOfStream(await ask(port, other, route));
          assert.doesNotMatch(response, /Inkwell console|operator_token/, `${other}${route}`);
        }
      }
      // A name that the proxy does not know reaches no listener.
      const stranger = await ask(port, "other.example.edu", "/console").then(textOfStream, () => "");
      assert.equal(stranger, "");

      // The address of the client, not of the proxy and not what the client says.
      const forged = { ...page, origin: `https://${console}`, "x-forwarded-for": "192.0.2.7" };
      const wrong = { method: "POST", headers: forged, body: { token: "wrong" } };
      (await ask(port, console, "/admin/session", wrong)).resume();
      await until("the attempt is logged", () => service.stderr.includes("127.0.0.2"));
      assert.doesNotMatch(service.stderr, /192\.0\.2\.7/);
    } finally {
      proxy.kill("SIGKILL");
      await ended;
    }
  });
}
