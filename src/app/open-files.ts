/** Limits of connections, derived from the number of files that the process may open. */
import { readFileSync } from "node:fs";
import type { ServiceLimits } from "../config/limits.ts";
import { OperatorError } from "../errors.ts";
import type { ConnectionLimits } from "../http/connections.ts";

/**
 * Files for other uses than public connections: operator listener, database, engines. The portal's
 * connections come in addition.
 */
const reservedFiles = 384;

/** Most connections of the portal. Each open page keeps one or two. */
const portalConnectionsMax = 512;
/** Share of the files that the portal takes if there are few. */
const portalShare = 1 / 8;

/** Assumed if the system does not report a limit. The usual limit of a shell. */
const openFilesUsual = 1024;

const connectionsDefaultMax = 8192;
const connectionsMin = 16;

/** Default share of the connections for one address. */
const addressShare = 1 / 4;

/**
 * Returns how many files this process may open. Node raises the soft limit to the hard one at its
 * start.
 */
export function openFilesMax(read = () => readFileSync("/proc/self/limits", "utf8")): number {
  let limits: string;
  try {
    limits = read();
  } catch {
    // Only Linux has this file.
    return openFilesUsual;
  }
  const [, soft] = /^Max open files\s+(\d+|unlimited)/m.exec(limits) ?? [];
  if (soft === "unlimited") return Number.MAX_SAFE_INTEGER;
  return soft === undefined ? openFilesUsual : Number(soft);
}

/**
 * Fills in the defaults. Throws an `OperatorError` if more connections are configured than files
 * can be open.
 */
export function connectionLimits(
  { connectionsMax, connectionsPerAddressMax, trustedProxies }: ServiceLimits,
  { openFiles = openFilesMax(), hasPortal = false } = {},
): ConnectionLimits {
  const reserved = reservedFiles + (hasPortal ? portalConnections(openFiles) : 0);
  if (connectionsMax !== null && connectionsMax + reserved > openFiles) {
    throw new OperatorError(
      `limits.connections is ${connectionsMax}, but this process may only open ${openFiles} files, ${reserved} of them for other uses. Raise its limit (ulimit -n, LimitNOFILE in systemd), or lower limits.connections.`,
    );
  }
  // Half of the files: a request to an upstream takes a second one.
  const suited = Math.floor((openFiles - reserved) / 2);
  const max = connectionsMax ?? Math.max(connectionsMin, Math.min(suited, connectionsDefaultMax));
  return {
    connectionsMax: max,
    connectionsPerAddressMax: connectionsPerAddressMax ?? Math.max(1, Math.floor(max * addressShare)),
    trustedProxies,
  };
}

/** Returns the limits of the portal. A proxy in front of it carries many clients. */
export function portalConnectionLimits(
  { trustedProxies }: ServiceLimits,
  openFiles = openFilesMax(),
): ConnectionLimits {
  const max = portalConnections(openFiles);
  return { connectionsMax: max, connectionsPerAddressMax: Math.ceil(max * addressShare), trustedProxies };
}

function portalConnections(openFiles: number): number {
  return Math.max(connectionsMin, Math.min(portalConnectionsMax, Math.floor(openFiles * portalShare)));
}
