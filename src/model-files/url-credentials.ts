/**
 * User and password in a URL: split off before the URL is used or shown, sent only to the URL's
 * own origin.
 */
import { tryDecode } from "../percent-encoding.ts";

/** An `authorization` header, and the only origin that receives it. */
export interface Credential {
  origin: string;
  authorization: string;
}

/**
 * Splits `https://user:secret@host/...` into a URL without them and the credential for its host.
 * Undefined if a `%` in user or secret begins no valid escape.
 */
export function takeCredentials(from: URL): { url: URL; credentials: Credential[] } | undefined {
  const url = new URL(from);
  if (url.username === "" && url.password === "") return { url, credentials: [] };
  const user = tryDecode(url.username);
  const secret = tryDecode(url.password);
  if (user === undefined || secret === undefined) return undefined;
  url.username = "";
  url.password = "";
  const authorization = `Basic ${Buffer.from(`${user}:${secret}`).toString("base64")}`;
  return { url, credentials: [{ origin: url.origin, authorization }] };
}
