/** The client of an address, and the default limits on connections. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { connect, type Socket } from "node:net";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connectionLimits, openFilesMax, portalConnectionLimits } from "../../src/app/open-files.ts";
import { OperatorError } from "../../src/errors.ts";
import { clientOf, dropIfIdle } from "../../src/http/connections.ts";
import { load } from "../fixtures/configuration.ts";
import { until } from "../fixtures/until.ts";

describe("the client", () => {
  const rows: [address: string, client: string][] = [
    ["192.0.2.1", "192.0.2.1"],
    ["::ffff:192.0.2.1", "192.0.2.1"],
    ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
    ["2001:db8:1:2::9", "2001:db8:1:2::/64"],
    ["2001:0db8:1:2::", "2001:db8:1:2::/64"],
    ["2001:db8::1", "2001:db8:0:0::/64"],
    ["::1", "0:0:0:0::/64"],
    ["fe80::1%eth0", "fe80:0:0:0::/64"],
    ["64:ff9b::192.0.2.1", "64:ff9b:0:0::/64"],
    ["1::5:6:7:8:9", "1:0:0:5::/64"],
  ];
  for (const [address, client] of rows) {
    test(`of ${address} is ${client}`, () => assert.equal(clientOf(address), client));
  }
});

describe("connections by default", () => {
  const { limits } = load("");
  const of = (openFiles: number) => connectionLimits(limits, { openFiles });

  test("use half of the files that are not reserved, up to a maximum", () => {
    assert.deepEqual(of(1024), {
      connectionsMax: 320,
      connectionsPerAddressMax: 80,
      trustedProxies: [],
    });
    assert.equal(of(65_536).connectionsMax, 8192);
    assert.equal(of(Number.MAX_SAFE_INTEGER).connectionsMax, 8192);
    assert.equal(of(100).connectionsMax, 16, "the service can be used even then");
  });

  test("leave those of the portal, which takes an eighth of the files, up to a maximum", () => {
    const portal = (openFiles: number) => portalConnectionLimits(limits, openFiles);
    const trustedProxies: string[] = [];
    assert.deepEqual(portal(1024), { connectionsMax: 128, connectionsPerAddressMax: 32, trustedProxies });
    assert.deepEqual(portal(65_536), { connectionsMax: 512, connectionsPerAddressMax: 128, trustedProxies });
    assert.equal(portal(100).connectionsMax, 16);
    const beside = connectionLimits(limits, { openFiles: 1024, hasPortal: true });
    assert.equal(beside.connectionsMax, of(1024 - 128).connectionsMax);
  });

  test("depend on the file limit of the system", () => {
    const line = (soft: string) => () =>
      `Limit  Soft Limit\nMax open files            ${soft}   524288   files\n`;
    assert.equal(openFilesMax(line("4096")), 4096);
    assert.equal(openFilesMax(line("unlimited")), Number.MAX_SAFE_INTEGER);
    assert.equal(
      openFilesMax(() => "nothing of the kind"),
      1024,
    );
    assert.equal(
      openFilesMax(() => {
        throw new Error("no such file");
      }),
      1024,
    );
    assert.ok(openFilesMax() > 0);
  });
});

test("refuses to start with more connections than files, and says what to do", () => {
  const { limits } = load("limits: { connections: 2000, connections_per_address: 7 }");
  assert.throws(
    () => connectionLimits(limits, { openFiles: 2383 }),
    (error) =>
      error instanceof OperatorError &&
      /limits\.connections is 2000.*2383 files.*LimitNOFILE/.test(error.message),
  );
  const { connectionsMax, connectionsPerAddressMax } = connectionLimits(limits, { openFiles: 2384 });
  assert.deepEqual([connectionsMax, connectionsPerAddressMax], [2000, 7]);
});

test("accepts addresses and networks as trusted proxies", () => {
  const trusted = (list: string) => load(`limits: { trusted_proxies: ${list} }`).limits.trustedProxies;
  assert.deepEqual(trusted('["10.0.0.0/8", "2001:db8::/32", "192.0.2.1"]'), [
    "10.0.0.0/8",
    "2001:db8::/32",
    "192.0.2.1",
  ]);
  for (const wrong of [
    "10.0.0.0/33",
    "10.0.0/8",
    "::1/129",
    "proxy.example",
    "10.0.0.1/8/9",
    "10.0.0.1/",
    "/8",
  ]) {
    assert.throws(() => trusted(`["${wrong}"]`), /an IP address or a network such as 10\.0\.0\.0\/8/, wrong);
  }
});

describe("a client that reads nothing", () => {
  /** Two requests in one segment. */
  async function sendTwo(listener: RequestListener, use: (socket: Socket) => Promise<void>): Promise<void> {
    const server = createServer(listener).listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    assert.ok(address !== null && typeof address === "object");
    const socket = connect(address.port, "127.0.0.1");
    socket.on("error", () => {});
    const requests = ["/one", "/two"].map((path) => `GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`);
    socket.write(requests.join(""));
    try {
      await use(socket);
    } finally {
      socket.destroy();
      server.close();
    }
  }

  test("is not one that waits for its second answer", async () => {
    let received = "";
    await sendTwo(
      async ({ url }, response) => {
        if (url === "/two") await sleep(400);
        response.end(`answer to ${url}`);
        if (url === "/one") dropIfIdle(response, 100);
      },
      async (socket) => {
        socket.on("data", (bytes) => {
          received += String(bytes);
        });
        await until("an answer or the end", () => socket.destroyed || received.includes("answer to /two"));
      },
    );
    assert.match(received, /answer to \/one[\s\S]*answer to \/two/);
  });

  test("is dropped also if its answer has waited for one before it", async () => {
    const closed = Promise.withResolvers<void>();
    await sendTwo(
      async ({ url, socket }, response) => {
        socket.once("close", () => closed.resolve());
        if (url === "/one") await sleep(50);
        response.end(url === "/one" ? "short" : Buffer.alloc(32 * 1024 * 1024));
        if (url === "/two") dropIfIdle(response, 100);
      },
      async (socket) => {
        socket.pause();
        await closed.promise;
      },
    );
  });
});
