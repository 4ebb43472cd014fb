/**
 * Limits the connections of a listener, in total and from one client address, so that no client
 * can use up the files that the process may open. Limits the requests that one connection sends
 * ahead of its answers. The listeners have separate limits.
 *
 * At a limit, a new connection gets `503 overloaded` before a request is read, and a balancer may
 * repeat the request elsewhere. Trusted proxies are exempt from the limit per address, because
 * they carry many clients. A flood from outside is for the proxy in front.
 */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { BlockList, isIPv6, type Socket } from "node:net";
import { invariant, Refusal } from "../errors.ts";
import { limits } from "../limits/limits.ts";
import type { ConnectionRefusal } from "../telemetry/metrics.ts";
import { errorBody, errorHeaders, rawResponse } from "./openai-format/error-body.ts";

export interface ConnectionLimits {
  connectionsMax: number;
  connectionsPerAddressMax: number;
  /** Addresses and networks (`10.0.0.0/8`) of proxies. */
  trustedProxies: readonly string[];
}

type RefusalListener = (reason: ConnectionRefusal, address: string) => void;

/** Time that a refused connection stays open, so that its client can read the answer. */
const lingerMs = 1_000;

/** Answers and closes, also if the client leaves its side open. */
export function endSoon(socket: Socket, answer: string): void {
  socket.end(answer, () => {
    const timer = setTimeout(() => socket.destroy(), lingerMs);
    socket.once("close", () => clearTimeout(timer));
  });
}

/** Closes the connection if its client reads nothing of this response for so long. */
export function dropIfIdle(response: ServerResponse, idleMs: number): void {
  const { socket } = response;
  if (response.writableFinished) return;
  if (socket === null) {
    // It waits for a response before it.
    response.once("socket", () => dropIfIdle(response, idleMs));
    return;
  }
  socket.setTimeout(idleMs);
  response.on("timeout", () => {
    // Without anything to read, the client waits for this service.
    if (response.writableLength > 0) socket.destroy();
    else socket.setTimeout(idleMs);
  });
  // Before Node sets its time for the next request. The next response may take longer.
  response.prependOnceListener("finish", () => socket.setTimeout(0));
}

/** Most refused connections that stay open. Further ones are closed without an answer. */
const lingeringMax = 64;

/** Prefix of the IPv6 network that one client controls, in groups of 16 bits. */
const clientGroups = 4;

export class Connections {
  #limits: ConnectionLimits;
  #trusted: BlockList;
  /** Open connections that count, by client address. */
  readonly #ofClients = new Map<string, number>();
  /** The client of each of them. */
  readonly #counted = new Map<Socket, string>();
  /** Requests of a connection without an answer. */
  readonly #unanswered = new WeakMap<Socket, number>();
  /** Their requests are dropped. */
  readonly #refused = new WeakSet<Socket>();
  #lingering = 0;

  constructor(limits: ConnectionLimits) {
    this.#limits = limits;
    this.#trusted = networksOf(limits.trustedProxies);
  }

  /** Changes the limits. Open connections stay open. */
  configure(limits: ConnectionLimits): void {
    this.#limits = limits;
    this.#trusted = networksOf(limits.trustedProxies);
  }

  /** Open connections, without refused ones. */
  get count(): number {
    return this.#counted.size;
  }

  get max(): number {
    return this.#limits.connectionsMax;
  }

  /** Lets only connections and requests within the limits reach the server. */
  guard(server: Server, onRefused: RefusalListener): void {
    filter(server, "connection", (socket: Socket) => this.#admit(socket, onRefused));
    filter(server, "request", (request: IncomingMessage, response: ServerResponse) =>
      this.#begin(request, response),
    );
  }

  #admit(socket: Socket, onRefused: RefusalListener): boolean {
    const { remoteAddress } = socket;
    // The client has already left.
    if (remoteAddress === undefined) {
      socket.destroy();
      return false;
    }
    const { connectionsMax, connectionsPerAddressMax } = this.#limits;
    const address = clientOf(remoteAddress);
    const count = this.#ofClients.get(address) ?? 0;
    const isFull = this.#counted.size >= connectionsMax;
    if (isFull || (count >= connectionsPerAddressMax && !this.isTrusted(remoteAddress))) {
      onRefused(isFull ? "total" : "address", remoteAddress);
      this.#refuse(socket, isFull ? "as it can" : "from your address as it accepts");
      return false;
    }
    this.#ofClients.set(address, count + 1);
    this.#counted.set(socket, address);
    socket.once("close", () => this.#release(socket));
    return true;
  }

  /**
   * Counts a request until its response ends. Closes a connection that has sent too many ahead:
   * Node reads 64 KiB of a connection at once, which are 2,000 requests of 30 bytes, and would
   * block the event loop for 0.1 s.
   */
  #begin({ socket }: IncomingMessage, response: ServerResponse): boolean {
    if (this.#refused.has(socket)) return false;
    const count = (this.#unanswered.get(socket) ?? 0) + 1;
    if (count > requestsAheadMax) {
      destroyUnparsed(socket);
      return false;
    }
    this.#unanswered.set(socket, count);
    response.once("close", () => this.#unanswered.set(socket, (this.#unanswered.get(socket) ?? 1) - 1));
    return true;
  }

  /** The connection counts no longer. */
  #release(socket: Socket): void {
    const address = this.#counted.get(socket);
    if (address === undefined) return;
    this.#counted.delete(socket);
    const left = (this.#ofClients.get(address) ?? 1) - 1;
    if (left > 0) this.#ofClients.set(address, left);
    else this.#ofClients.delete(address);
  }

  /** Whether this is the address of a trusted proxy. */
  isTrusted(address: string): boolean {
    const plain = withoutMapping(address);
    return this.#trusted.check(plain, isIPv6(plain) ? "ipv6" : "ipv4");
  }

  #refuse(socket: Socket, howMany: string): void {
    this.#refused.add(socket);
    socket.on("error", () => {});
    if (this.#lingering >= lingeringMax) {
      socket.destroy();
      return;
    }
    this.#lingering += 1;
    const refusal = new Refusal(
      "overloaded",
      `This service has as many connections ${howMany}. Close connections that you do not need, and try again shortly.`,
      { retryAfterSeconds: 2 },
    );
    endSoon(socket, rawResponse("503 Service Unavailable", errorBody(refusal), errorHeaders(refusal)));
    // A connection that is closed over unread data is reset, and the client loses the answer.
    socket.resume();
    socket.once("close", () => {
      this.#lingering -= 1;
    });
  }
}

/** Returns the client of an address: the IPv4 address, or the /64 network of an IPv6 address. */
export function clientOf(address: string): string {
  const plain = withoutMapping(address);
  if (!isIPv6(plain)) return plain;
  const [unscoped = ""] = plain.split("%", 1);
  const [head = "", tail] = unscoped.split("::");
  const groups = head === "" ? [] : head.split(":");
  if (tail !== undefined) {
    const last = tail === "" ? [] : tail.split(":");
    // An IPv4 address at the end counts as two groups.
    const length = last.length + (last.at(-1)?.includes(".") ? 1 : 0);
    while (groups.length + length < 8) groups.push("0");
    groups.push(...last);
  }
  const prefix = groups.slice(0, clientGroups).map((group) => Number.parseInt(group, 16).toString(16));
  return `${prefix.join(":")}::/64`;
}

/**
 * Returns the IPv4 address of a mapped one (`::ffff:192.0.2.1`), which listeners for both families
 * report.
 */
function withoutMapping(address: string): string {
  return /^::ffff:([\d.]+)$/i.exec(address)?.[1] ?? address;
}

function networksOf(trusted: readonly string[]): BlockList {
  const networks = new BlockList();
  for (const each of trusted) {
    const [address = "", prefix] = each.split("/");
    const family = isIPv6(address) ? "ipv6" : "ipv4";
    if (prefix === undefined) networks.addAddress(address, family);
    else networks.addSubnet(address, Number(prefix), family);
  }
  return networks;
}

/** Most requests that a connection may send ahead. Clients that pipeline send a few of them. */
export const requestsAheadMax = limits.requestsAhead.most;

/** Hands on only those events to the listeners of the server that `admit` returns true for. */
function filter<Arguments extends unknown[]>(
  server: Server,
  event: string,
  admit: (...given: Arguments) => boolean,
): void {
  const listeners = server.listeners(event);
  invariant(listeners.length > 0, "an HTTP server listens to its connections and requests");
  server.removeAllListeners(event);
  server.on(event, (...given: Arguments) => {
    if (!admit(...given)) return;
    for (const listener of listeners) Reflect.apply(listener, server, given);
  });
}

/**
 * Closes a connection. `destroy` alone does not stop Node from parsing the rest of what it has
 * read, which may be thousands of requests. Without its undocumented listener the parser makes
 * none of them. Node sets it anew for each connection.
 */
function destroyUnparsed(socket: Socket): void {
  const parser: unknown = Reflect.get(socket, "parser");
  if (typeof parser === "object" && parser !== null) Reflect.set(parser, "onIncoming", () => 0);
  socket.destroy();
}
