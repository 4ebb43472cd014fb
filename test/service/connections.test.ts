/** The program under more connections than it may open files. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { ask } from "../fixtures/http-stream.ts";
import { assertSoundLedger } from "../fixtures/ledger-file.ts";
import { newFolder, startProgram } from "../fixtures/program.ts";
import { until } from "../fixtures/until.ts";
import { startUpstream } from "../fixtures/upstream.ts";
import { configureUpstream } from "../fixtures/upstream-program.ts";

const openFiles = 528;
/** The documented limit for this number of files. */
const connectionsMax = (openFiles - 384) / 2;

test("keeps files for health checks, the operator and the database during a flood of connections", {
  skip: process.platform !== "linux" && "open files are counted in /proc",
}, async () => {
  await using upstream = await startUpstream();
  await using folder = await newFolder();
  // As behind a proxy: one address may use all connections.
  configureUpstream(folder.path, upstream, "limits: { trusted_proxies: [127.0.0.1] }\n");
  await using service = startProgram(folder.path, { openFiles });
  const { url, operatorUrl, key } = await service.up();
  assert.ok(key !== null);
  const port = Number(new URL(url).port);

  const flood: Socket[] = [];
  for (let n = 0; n < 1_000; n += 1) {
    const socket = connect({ port, host: "127.0.0.1" });
    socket.on("error", () => {}).resume();
    flood.push(socket);
    if (n % 50 === 0) await once(socket, "connect");
  }
  const metric = async (name: string) => {
    const text = await (await fetch(`${operatorUrl}/metrics`)).text();
    return Number(new RegExp(`^${name} (.*)$`, "m").exec(text)?.[1]);
  };
  await until("it is full", async () => (await metric("inkwell_connections")) === connectionsMax);
  assert.equal(await metric("inkwell_connections_max"), connectionsMax);
  const inUse = readdirSync(`/proc/${service.process.pid}/fd`).length;
  assert.ok(inUse < openFiles, `${inUse} files are open`);
  for (const path of ["/healthz", "/readyz"]) assert.equal((await fetch(operatorUrl + path)).status, 200);

  for (const socket of flood) socket.destroy();
  await until("they have gone", async () => (await metric("inkwell_connections")) === 0);
  const answer = await ask({ url, key, content: "Hello", max_tokens: 3 });
  assert.equal(answer.status, 200, await answer.text());
  assert.deepEqual(await service.stop(), { code: 0, signal: null });
  assertSoundLedger(folder.path);
});
