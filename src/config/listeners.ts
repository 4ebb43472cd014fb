/** The rules that the addresses of all listeners follow. */
import { isIP } from "node:net";
import type { Section } from "./section.ts";

export interface ListenerAddress {
  host: string;
  /** 0: any free port. */
  port: number;
}

/** Reports a port that another listener has on the same address. `others`: by their sections. */
export function requireOwnPort(
  section: Section,
  { host, port, where }: ListenerAddress & { where: string },
  others: Readonly<Record<string, ListenerAddress>>,
): void {
  for (const [name, other] of Object.entries(others)) {
    const areTogether =
      addressOf(host) === addressOf(other.host) || isEveryAddress(host) || isEveryAddress(other.host);
    if (port === 0 || port !== other.port || !areTogether) continue;
    section.problem(where, `${section.path}.port: ${port} is also the port of ${name}; choose another`);
  }
}

function addressOf(host: string): string {
  return host.toLowerCase() === "localhost" ? "127.0.0.1" : host;
}

function isEveryAddress(host: string): boolean {
  return host === "0.0.0.0" || host === "::";
}

/** Returns the names among hosts. Listeners accept IP addresses and `localhost` in any case. */
export function namesAmong(hosts: readonly string[]): string[] {
  return hosts.filter((host) => isIP(host) === 0 && host !== "localhost");
}
