/**
 * The secret that requests of these pages carry, and without which the session's cookie is worth
 * nothing: a browser sends cookies to every port of the host.
 *
 * It is in the local storage, which only pages of the same scheme, host and port can read. All
 * tabs share it, and signing out forgets it.
 */
import { paths } from "./paths.ts";

/** Console and portal can be below one host name. */
const name = `inkwell-page ${paths.api}`;
const secretBytes = 32;

/** Returns the secret, which is made at its first use. */
export function pageSecret(): string {
  const storage = storageOfOrigin();
  const known = storage.getItem(name);
  if (known !== null) return known;
  const secret = base64url(crypto.getRandomValues(new Uint8Array(secretBytes)));
  storage.setItem(name, secret);
  return secret;
}

/** Whether this browser may be signed in: it has a secret. */
export function hasPageSecret(): boolean {
  return storageOfOrigin().getItem(name) !== null;
}

export function forgetPageSecret(): void {
  storageOfOrigin().removeItem(name);
}

function storageOfOrigin(): Storage {
  try {
    return localStorage;
  } catch {
    throw new Error(
      "This browser keeps no data for this page, so it cannot stay signed in. Allow cookies and site data for this address.",
    );
  }
}

function base64url(bytes: Uint8Array): string {
  const letters: Record<string, string> = { "+": "-", "/": "_", "=": "" };
  return btoa(String.fromCharCode(...bytes)).replaceAll(/[+/=]/g, (letter) => letters[letter] ?? "");
}
