/**
 * The proxies that this machine's surroundings name, under the customary variables. A small name comes before a capital
 * one, and one that is set to nothing means none. Knows no protocol of a proxy: undici speaks them. SOCKS is not
 * offered: undici's is an experiment by its own word, keeps time limits of its own, and sends a password as the address
 * has it, `%XX` and all.
 */
import { OperatorError } from "../errors.ts";
import { tryDecode } from "./try-decode.ts";

export interface Proxies {
  /** Addresses that undici takes; empty: none. */
  http: string;
  https: string;
  /** As it was written: names of hosts that are asked directly. */
  none: string;
}

export const noProxies: Proxies = { http: "", https: "", none: "" };

const protocols = new Set(["http:", "https:"]);

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
  if (url !== null && protocols.has(url.protocol) && isHostAlone(url)) return address;
  throw new OperatorError(
    `${environment[small] === undefined ? name : small} is not the address of an HTTP proxy: write it as http://host:port, ` +
      "https://host:port, or with user:password@ before the host and %25 for a % in them",
  );
}

/** A host, and perhaps a user who can be read; no more, which undici would refuse. */
function isHostAlone({ hostname, pathname, search, hash, username, password }: URL): boolean {
  const isBare = hostname !== "" && pathname === "/" && search === "" && hash === "";
  return isBare && tryDecode(username) !== undefined && tryDecode(password) !== undefined;
}
