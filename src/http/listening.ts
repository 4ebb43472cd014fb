/**
 * Opens a listener on its address. `localhost` is both loopback addresses where the machine has both.
 *
 * Fastify would open a second HTTP server for the other one, which has none of the limits and listeners of the first.
 * Here the first server gets the connections of both.
 */
import { lookup } from "node:dns/promises";
import { once } from "node:events";
import { createServer } from "node:net";
import type { FastifyInstance } from "fastify";
import { codeOf, invariant } from "../errors.ts";

export interface Address {
  host: string;
  /** 0: any free port. */
  port: number;
}

/** Resolves with the URL of the listener, for example `http://127.0.0.1:8080`. `resolve`: for tests. */
export async function listenOn(
  app: FastifyInstance,
  { host, port }: Address,
  resolve: (name: string) => Promise<string[]> = addressesOf,
): Promise<string> {
  const [first = host, ...others] = host === "localhost" ? await resolve(host) : [host];
  await app.listen({ host: first, port });
  const bound = app.server.address();
  invariant(bound !== null && typeof bound !== "string", "a listener on a port has an address");
  for (const each of others) await alsoListen(app, { host: each, port: bound.port });
  return `http://${bound.family === "IPv6" ? `[${bound.address}]` : bound.address}:${bound.port}`;
}

async function addressesOf(name: string): Promise<string[]> {
  const found = await lookup(name, { all: true });
  return [...new Set(found.map(({ address }) => address))];
}

async function alsoListen({ server }: FastifyInstance, address: Address): Promise<void> {
  // As HTTP servers open theirs.
  const second = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    if (server.listening) server.emit("connection", socket);
    else socket.destroy();
  });
  second.listen(address);
  try {
    await once(second, "listening");
  } catch (error) {
    // Names may have addresses that the machine does not; the first one serves without them.
    if (["EADDRNOTAVAIL", "EAFNOSUPPORT"].includes(codeOf(error) ?? "")) return;
    throw error;
  }
  server.once("close", () => second.close());
}
