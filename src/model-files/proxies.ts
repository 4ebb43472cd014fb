/**
 * Reads the proxy settings of the environment. A lower-case name takes precedence over the
 * upper-case one, and an empty value means no proxy.
 *
 * SOCKS is not supported: undici calls its implementation experimental, applies other timeouts to
 * it, and sends the password with its `%XX` escapes.
 */
import { OperatorError } from "../errors.ts";
import { takeCredentials } from "./url-credentials.ts";

export interface Proxies {
  /** URLs for undici. Empty: no proxy. */
  http: string;
  https: string;
  /** NO_PROXY as written: hosts that are reached directly. */
  none: string;
}

const protocols = new Set(["http:", "https:"]);

/**
 * Throws an `OperatorError` that names the variable, but not its value, which may contain a
 * password.
 */
export function proxiesOf(environment: Readonly<Record<string, string | undefined>>): Proxies {
  const http = proxyIn(environment, "HTTP_PROXY");
  return {
    http: http ?? "",
    https: proxyIn(environment, "HTTPS_PROXY") ?? http ?? "",
    none: environment.no_proxy ?? environment.NO_PROXY ?? "",
  };
}

function proxyIn(environment: Readonly<Record<string, string | undefined>>, name: string) {
  const small = name.toLowerCase();
  const written = (environment[small] ?? environment[name])?.trim();
  if (!written) return written;
  // Like curl and pip, accepts `proxy.example:3128`.
  const proxy = /^[a-z][a-z0-9+.-]*:\/\//i.test(written) ? written : `http://${written}`;
  const url = URL.parse(proxy);
  if (url !== null && protocols.has(url.protocol) && isHostAlone(url)) return proxy;
  throw new OperatorError(
    `${environment[small] === undefined ? name : small} is not the URL of an HTTP proxy: write it as http://host:port, ` +
      "https://host:port, or with user:password@ before the host and %25 for a % in them",
  );
}

/**
 * Whether the URL has a host and perhaps a valid user, but nothing else. undici refuses other
 * URLs.
 */
function isHostAlone(url: URL): boolean {
  const { hostname, pathname, search, hash } = url;
  const isBare = hostname !== "" && pathname === "/" && search === "" && hash === "";
  return isBare && takeCredentials(url) !== undefined;
}
