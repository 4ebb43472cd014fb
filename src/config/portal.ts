/**
 * The `portal` section: address and URL of the portal's listener. There is no portal without the
 * section or one of its variables.
 */
import * as kind from "./kinds.ts";
import { type ListenerAddress, namesAmong, requireOwnPort } from "./listeners.ts";
import type { Section } from "./section.ts";

export type PortalConfig = NonNullable<ReturnType<typeof readPortal>>;

/** Null: no portal. `others`: the other listeners, by their sections. */
export function readPortal(root: Section, others: Readonly<Record<string, ListenerAddress>>) {
  return root.optionalSection("portal", (section) => {
    const host = section.value("host", kind.host, { or: "127.0.0.1" });
    const port = section.placed("port", kind.port, { or: 8082 });
    const url = section.optional("url", kind.ownUrl);
    const keys = section.placed("keys", kind.flag, { or: true });
    if (!keys.value && !root.hasSection("sign_in") && url === null) {
      section.problem(
        keys.where,
        "portal.keys: without the section sign_in, and without portal.url for invitations, people can sign in with keys only; add one of them, or remove portal.keys",
      );
    }
    requireOwnPort(section, { host, port: port.value, where: port.where }, others);
    return {
      host,
      /** 0: any free port. */
      port: port.value,
      /** URL that people use, if it differs from that of the listener. */
      url,
      /** Whether an API key signs in. */
      keys: keys.value,
    };
  });
}

/** Returns the host names of the portal, besides IP addresses and `localhost`. */
export function portalNames({ host, url }: PortalConfig): string[] {
  return namesAmong([host, ...(url === null ? [] : [new URL(url).hostname])]);
}
