/**
 * Opens a listener, and explains to the operator why a port cannot be bound. `localhost` means
 * both loopback addresses, if the machine has both.
 *
 * For the second address, Fastify would open another HTTP server without the limits and listeners
 * of the first. Here the first server gets the connections of both addresses.
 */
import { lookup } from "node:dns/promises";
import { once } from "node:events";
import { createServer, isIPv6 } from "node:net";
import type { FastifyInstance } from "fastify";
import { codeOf, invariant, OperatorError } from "../errors.ts";

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

type ListenerName = "listen" | "operator" | "portal";

const variablePrefix = { listen: "INKWELL", operator: "INKWELL_OPERATOR", portal: "INKWELL_PORTAL" };

/** Returns the host for clients on this machine: loopback if the listener has every address. */
export function dialled(host: string): string {
  if (host === "0.0.0.0") return "127.0.0.1";
  return host === "::" ? "::1" : host;
}

/** Returns the URL of a listener for clients on this machine. */
export function clientUrl(host: string, boundUrl: string): string {
  const client = dialled(host);
  return client === host ? boundUrl : urlOf(client, Number(new URL(boundUrl).port));
}

/** The public address for the startup banner. `boundUrl` has the port that the listener got. */
export function publicAddress({ host, port }: Address, boundUrl: string) {
  const client = dialled(host);
  return {
    publicUrl: urlOf(client, port || Number(new URL(boundUrl).port)),
    onEveryAddress: client !== host,
  };
}

/** Throws an `OperatorError` if a port cannot be bound. Keeps none. */
export async function requirePorts(all: Record<ListenerName, Address | null>): Promise<void> {
  for (const name of ["listen", "operator", "portal"] as const) {
    const address = all[name];
    if (address !== null) await requirePort(name, address);
  }
}

async function requirePort(name: ListenerName, address: Address): Promise<void> {
  if (address.port === 0) return;
  await bindOrExplain(name, address, async () => {
    // A worker can be given connections before it closes the port, which waits for their end.
    const server = createServer((socket) => socket.destroy()).listen(address);
    await once(server, "listening");
    await once(server.close(), "close");
  });
}

/** Binds the address with `bind`. Throws an `OperatorError` if it cannot be bound. */
export async function bindOrExplain<T>(
  name: ListenerName,
  address: Address,
  bind: (address: Address) => Promise<T>,
): Promise<T> {
  const { host, port } = address;
  try {
    return await bind(address);
  } catch (error) {
    const code = codeOf(error);
    const prefix = variablePrefix[name];
    const other = `choose another one with ${name}: { port } in inkwell.yaml or ${prefix}_PORT`;
    if (code === "EADDRINUSE") {
      throw new OperatorError(
        `Port ${port} on ${host} is in use, perhaps by another Inkwell. Stop the other program, or ${other}.`,
        error,
      );
    }
    if (code === "EACCES") {
      throw new OperatorError(
        `This user may not listen on port ${port}. Ports above 1023 are allowed: ${other}.`,
        error,
      );
    }
    if (code === "EADDRNOTAVAIL" || code === "ENOTFOUND") {
      throw new OperatorError(
        `This machine has no address ${host}. Set one that it has with ${name}: { host } in inkwell.yaml or ${prefix}_HOST.`,
        error,
      );
    }
    throw error;
  }
}
