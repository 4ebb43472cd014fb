/**
 * The proxies that this machine's surroundings name, under the customary variables. A small name comes before a capital
 * one, and one that is set to nothing means none, as with curl. Knows no protocol of a proxy: undici speaks them.
 */
import { OperatorError } from "../errors.ts";
import { decoded } from "./decoded.ts";

export interface Proxies {
  /** Addresses that undici takes; empty: none. */
  http: string;
  https: string;
  /** As it was written: names of hosts that are asked directly. */
  none: string;
}

export const noProxies: Proxies = { http: "", https: "", none: "" };

const protocols = new Set(["http:", "https:", "socks5:", "socks:"]);

/** Throws an `OperatorError` that names the variable, and nothing of what may be a password. */
export function proxiesOf(environment: Readonly<Record<string, string | undefined>>): Proxies {
  const http = addressIn(environment, "HTTP_PROXY");
  return {
    http: http ?? "",
    https: addressIn(environment, "HTTPS_PROXY") ?? http ?? "",
    none: environment.no_proxy ?? environment.NO_PROXY ?? "",
  };
}

function addressIn(environment: Readonly<Record<string, string | undefined>>, name: string) {
  const small = name.toLowerCase();
  const written = (environment[small] ?? environment[name])?.trim();
  if (!written) return written;
  // `proxy.example:3128` is what curl and pip take too.
  const address = /^[a-z][a-z0-9+.-]*:\/\//i.test(written) ? written : `http://${written}`;
  const url = URL.parse(address);
  const usable = url !== null && protocols.has(url.protocol) && url.hostname !== "";
  if (usable && decoded(url.username) !== undefined && decoded(url.password) !== undefined) return address;
  throw new OperatorError(
    `${environment[small] === undefined ? name : small} is not the address of a proxy: write it as http://host:port, or ` +
      "http://user:password@host:port, with %25 for a % in them",
  );
}
