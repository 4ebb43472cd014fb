/**
 * The names under which the listeners of the operator and of the portal respond: their defence
 * against DNS rebinding.
 *
 * A web page can point its own host name at this machine. Its scripts then read this listener as
 * if it were their own origin, but their browser still sends the page's name in `Host`. So a
 * request must name an IP address, `localhost` or a configured name. Ports are not compared. An
 * HTTP/1.0 request without `Host` passes: browsers do not send one.
 */
import type { IncomingMessage } from "node:http";
import { isIPv4, isIPv6 } from "node:net";
import { Refusal } from "../../errors.ts";

/** Longest part of a refused name that a message repeats. */
const shownCharactersMax = 100;

/** For the operator's listener. */
const operatorRemedy = "add it to operator.hosts in inkwell.yaml";
/** For the portal. */
export const portalRemedy = "set portal.url in inkwell.yaml to a URL with this name";

export class AllowedHosts {
  #names: ReadonlySet<string> = new Set();
  readonly #remedy: string;

  /**
   * `names` in ASCII, without ports; IP addresses and `localhost` need no entry. `remedy`: what to
   * do if a refused name is the operator's own.
   */
  constructor(names: readonly string[], remedy = operatorRemedy) {
    this.replace(names);
    this.#remedy = remedy;
  }

  replace(names: readonly string[]): void {
    this.#names = new Set(["localhost", ...names.map(canonical)]);
  }

  /**
   * Throws unless every host that the request names is allowed: all `Host` headers, the target in
   * absolute form (`GET http://host/path`, which servers must prefer to `Host`), and all `Origin`
   * headers.
   */
  check(
    { headersDistinct: { host: hosts = [], origin: origins = [] } }: IncomingMessage,
    target: string,
  ): void {
    const inTarget = /^[a-z][a-z\d+.-]*:\/\/([^/?#]*)/i.exec(target)?.[1];
    for (const host of inTarget === undefined ? hosts : [...hosts, inTarget]) {
      if (!this.#allows(host)) {
        throw new Refusal("host_not_allowed", this.#message("requests for the host", host));
      }
    }
    for (const origin of origins) {
      if (!this.#allowsOrigin(origin)) {
        throw new Refusal("origin_not_allowed", this.#message("pages of the origin", origin));
      }
    }
  }

  #message(what: string, name: string): string {
    const shown = JSON.stringify(name.slice(0, shownCharactersMax));
    return `This listener does not respond to ${what} ${shown}. IP addresses and localhost are always accepted. If the name is yours, ${this.#remedy}.`;
  }

  /** `authority` is `name`, `name:port`, `1.2.3.4:port` or `[::1]:port`. */
  #allows(authority: string): boolean {
    const [, inBrackets, plain] = /^(?:\[([^\]]*)\]|([^\s:/@[\]\\]+))(?::\d*)?$/.exec(authority) ?? [];
    if (inBrackets !== undefined) return isIPv6(inBrackets);
    if (plain === undefined) return false;
    const name = canonical(plain);
    return isIPv4(name) || this.#names.has(name);
  }

  /**
   * Refuses `null`, which sandboxed pages and local files send, and the origins of browser
   * extensions.
   */
  #allowsOrigin(origin: string): boolean {
    if (!/^https?:\/\//i.test(origin) || !URL.canParse(origin)) return false;
    return this.#allows(new URL(origin).host);
  }
}

/** `OPS.example.` and `ops.example` are the same host. */
function canonical(name: string): string {
  return name.toLowerCase().replace(/\.$/, "");
}

/**
 * A host or origin as the log may have it: undefined for text that is not a DNS name, which may be
 * a secret.
 */
export function loggableHostIn(header: string | undefined): string | undefined {
  return /^(?:https?:\/\/)?[a-z\d.-]{1,253}(?::\d{1,5})?$/i.test(header ?? "") ? header : undefined;
}
