/** The proxies of deploy/ end floods of one address, and serve other addresses meanwhile. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { connect, type Socket } from "node:net";
import path from "node:path";
import { describe, test } from "node:test";
import { missing, newFolder, nginxArguments, textOf } from "../fixtures/deploy.ts";
import { freePort } from "../fixtures/program.ts";
import { parseAnswer } from "../fixtures/raw-http.ts";
import { until } from "../fixtures/until.ts";

/** Starts the proxy of `text` in front of `node`, and returns its port. */
type Start = (text: string, node: string) => Promise<{ port: number; proxy: ChildProcess }>;

async function startHaproxy(text: string, node: string) {
  const port = await freePort();
  const file = path.join(newFolder(), "haproxy.cfg");
  const configuration = text
    .replace(/^resolvers docker\n(?: .*\n)+/m, "")
    .replaceAll(" resolvers docker", "")
    .replace(" port 8081", "")
    .replace("bind :8080", `bind 127.0.0.1:${port}`)
    .replaceAll(/node-[ab]:8080/g, node);
  writeFileSync(file, configuration);
  return { port, proxy: spawn("haproxy", ["-db", "-f", file], { stdio: "ignore" }) };
}

async function startNginx(text: string, node: string) {
  const port = await freePort();
  const sites = text
    .replace("listen 80 default_server;", `listen 127.0.0.1:${port};`)
    .replaceAll(/127\.0\.0\.1:80[89]0/g, node);
  return { port, proxy: spawn("nginx", nginxArguments(newFolder(), sites), { stdio: "ignore" }) };
}

/** Runs `attack` with the proxy in front of a service that does `answer`. */
async function beside(
  start: Start,
  text: string,
  answer: RequestListener,
  attack: (port: number) => Promise<void>,
): Promise<void> {
  const node = createServer(answer).listen(0, "127.0.0.1");
  await once(node, "listening");
  const address = node.address();
  assert.ok(typeof address === "object" && address !== null);
  const { port, proxy } = await start(text, `127.0.0.1:${address.port}`);
  const ended = once(proxy, "close");
  try {
    await until("the proxy answers", async () => (await statusFrom(port, "127.0.0.1", "/")) === 200);
    await attack(port);
  } finally {
    proxy.kill("SIGKILL");
    await ended;
    node.closeAllConnections();
    node.close();
  }
}

const request = (target: string) => `GET ${target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n`;

function open(port: number, localAddress: string): Socket {
  const socket = connect({ port, host: "127.0.0.1", localAddress });
  socket.on("error", () => {});
  return socket;
}

/** Status of a request; null if the connection is closed without one. */
async function statusFrom(port: number, address: string, target: string): Promise<number | null> {
  const socket = open(port, address);
  socket.write(request(target));
  let received = "";
  socket.setEncoding("latin1").on("data", (text) => {
    received += text;
  });
  await new Promise((resolve) => socket.on("close", resolve));
  return received === "" ? null : parseAnswer(received).status;
}

const connectionsMax = 200;
const surplus = 10;

for (const [file, program, start, requestsMax, rateLine] of [
  ["deploy/haproxy.cfg", "haproxy", startHaproxy, 500, /^ {2}http-request deny .*\n/m],
  ["deploy/nginx.conf", "nginx", startNginx, 200, /^ {2}limit_req .*\n/m],
] as const) {
  describe(file, { skip: missing(program, "-v") }, () => {
    test("refuses requests of an address over its rate, and none of another one", async () => {
      await beside(
        start,
        textOf(file),
        (_request, response) => response.end("yes"),
        async (port) => {
          const statuses: (number | null)[] = [];
          // Twice as many as an address may send at once, and those of some seconds.
          const ask = async () => {
            while (statuses.length < 2 * requestsMax + 200) {
              statuses.push(await statusFrom(port, "127.0.0.2", "/"));
            }
          };
          await Promise.all(Array.from({ length: 20 }, ask));
          assert.equal(statuses[0], 200);
          assert.deepEqual([...new Set(statuses)].toSorted(), [200, 429]);
          assert.equal(await statusFrom(port, "127.0.0.3", "/"), 200);
        },
      );
    });

    test("refuses connections of an address over its number, and none of another one", async () => {
      const text = textOf(file);
      assert.match(text, rateLine);
      await beside(
        start,
        // Without the other limit, which may come first.
        text.replace(rateLine, ""),
        ({ url }, response) => {
          if (url !== "/held") response.end("yes");
        },
        async (port) => {
          const held: Socket[] = [];
          let ended = 0;
          for (let n = 0; n < connectionsMax + surplus; n += 1) {
            const socket = open(port, "127.0.0.2");
            socket.resume().on("close", () => {
              ended += 1;
            });
            socket.write(request("/held"));
            held.push(socket);
          }
          await until("those over the number are closed", () => ended >= surplus);
          assert.equal(await statusFrom(port, "127.0.0.3", "/"), 200);
          assert.notEqual(await statusFrom(port, "127.0.0.2", "/"), 200);
          assert.equal(ended, surplus);
          for (const socket of held) socket.destroy();
        },
      );
    });
  });
}
