/**
 * Opens a listener. `localhost` means both loopback addresses, if the machine has both.
 *
 * For the second address, Fastify would open another HTTP server without the limits and listeners
 * of the first. Here the first server gets the connections of both addresses.
 */
import { lookup } from "node:dns/promises";
import { once } from "node:events";
import { createServer, isIPv6 } from "node:net";
import type { FastifyInstance } from "fastify";
import { codeOf, invariant } from "../errors.ts";

export interface Address {
  host: string;
  /** 0 means any free port. */
  port: number;
}

/**
 * Resolves with the URL of the listener, for example `http://127.0.0.1:8080`.
 * For tests: `resolve`.
 */
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
  return urlOf(bound.address, bound.port);
}

export function urlOf(host: string, port: number): string {
  return `http://${isIPv6(host) ? `[${host}]` : host}:${port}`;
}

async function addressesOf(name: string): Promise<string[]> {
  const found = await lookup(name, { all: true });
  return [...new Set(found.map(({ address }) => address))];
}

async function alsoListen({ server }: FastifyInstance, address: Address): Promise<void> {
  // The options of Node's HTTP servers.
  const second = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    if (server.listening) server.emit("connection", socket);
    else socket.destroy();
  });
  second.listen(address);
  try {
    await once(second, "listening");
  } catch (error) {
    // A name may have addresses that the machine lacks. The first address is enough.
    if (["EADDRNOTAVAIL", "EAFNOSUPPORT"].includes(codeOf(error) ?? "")) return;
    throw error;
  }
  server.once("close", () => second.close());
}
