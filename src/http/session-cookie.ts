/**
 * The cookie of a session, and the header that must come with it.
 *
 * A browser sends the cookie to every port of the host, and with requests that pages of other
 * ports cause: cookies and SameSite ignore ports. So the header has a second secret, which only
 * pages of the listener itself know. Pages of other origins cannot even send the header: the
 * browser asks first (a pre-flight request), and no listener of sessions allows it.
 */
import type { IncomingHttpHeaders } from "node:http";

export interface SessionCookie {
  name: string;
  isSecure: boolean;
}

/** A secret of 32 bytes in base64url, in the cookie and in the header. */
const secretPattern = /^[\w-]{43}$/;

/**
 * Returns the cookie of a listener. Browsers accept `__Host-` only over https and only from the
 * host itself, so that no other page can replace the cookie. `url`: the URL that users open.
 */
export function sessionCookie(plainName: string, url: string | null): SessionCookie {
  const isSecure = url?.startsWith("https:") ?? false;
  return { name: isSecure ? `__Host-${plainName}` : plainName, isSecure };
}

/**
 * Returns the secret in the cookie of a request. `none`: the request has no such cookie.
 * `invalid`: the cookie has another form, or comes twice, so that another page of this host has
 * set one.
 */
export function cookieIn(
  { cookie: header = "" }: IncomingHttpHeaders,
  { name }: SessionCookie,
): { kind: "none" } | { kind: "invalid" } | { kind: "secret"; secret: string } {
  const values = header
    .split(";")
    .map((pair) => pair.trim())
    .filter((pair) => pair.startsWith(`${name}=`))
    .map((pair) => pair.slice(name.length + 1));
  const [secret] = values;
  if (secret === undefined) return { kind: "none" };
  return values.length === 1 && secretPattern.test(secret) ? { kind: "secret", secret } : { kind: "invalid" };
}

/** Returns the value of `Set-Cookie`. `maxAgeSeconds` 0 removes the cookie. */
export function setCookie({ name, isSecure }: SessionCookie, secret: string, maxAgeSeconds: number): string {
  const secure = isSecure ? "; Secure" : "";
  return `${name}=${secret}; Path=/; Max-Age=${maxAgeSeconds}; HttpOnly; SameSite=Strict${secure}`;
}

const requestHeader = "x-inkwell-request";
/** docs/decisions/0057-pages-ask-again.md. */
const unattendedHeader = "x-inkwell-unattended";

/** Returns the secret of the page that sends a request. Null if it has none. */
export function pageSecretIn({ [requestHeader]: given }: IncomingHttpHeaders): string | null {
  return typeof given === "string" && secretPattern.test(given) ? given : null;
}

/**
 * Returns whether a page sends the request by itself. Such a request does not prolong a session: a
 * client that says so can only let its own session end earlier.
 */
export function isUnattended(headers: IncomingHttpHeaders): boolean {
  return headers[unattendedHeader] === "1";
}
