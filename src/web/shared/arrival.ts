/**
 * Takes the code of a link, or the answer of an issuer, out of the address before anything else
 * happens: nobody reads it there, and no history keeps it.
 */
import type { Arrival } from "./api.ts";
import { paths } from "./paths.ts";

/** The code of a link by which many join. It is exchanged with what somebody types. */
export interface Joining {
  joinBy: string;
}

const returnName = "inkwell-return";

/** Returns what the page arrives with, and shows the address of a page in its place. */
export function takeArrival(): Arrival | Joining | null {
  const { pathname, search, hash } = location;
  // A link that is pasted into this tab changes nothing but the fragment.
  addEventListener("hashchange", () => /^#(code|invite|join)=/.test(location.hash) && location.reload());
  if (pathname === `${paths.pages}/signed-in`) {
    history.replaceState(null, "", returnPath());
    return { response: search };
  }
  const fragment = new URLSearchParams(hash.slice(1));
  const [code, invitation, join] = [fragment.get("code"), fragment.get("invite"), fragment.get("join")];
  if (hash !== "") history.replaceState(null, "", pathname + search);
  if (invitation !== null) return { invitation };
  if (join !== null) return { joinBy: join };
  return code === null ? null : { code };
}

/** Keeps the present page of this tab while its user is at the issuer. */
export function keepReturnPath(): void {
  sessionStorage.setItem(returnName, location.pathname + location.search);
}

/** A path that begins with two slashes would be another host. */
function returnPath(): string {
  const kept = sessionStorage.getItem(returnName) ?? "";
  sessionStorage.removeItem(returnName);
  const isOwn = kept.startsWith(`${paths.pages}/`) && !kept.startsWith("//");
  return isOwn ? kept : `${paths.pages}/`;
}
