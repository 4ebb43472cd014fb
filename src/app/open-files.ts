/** Limits of connections, derived from the number of files that the process may open. */
import { readFileSync } from "node:fs";
import type { ServiceLimits } from "../config/limits.ts";
import { OperatorError } from "../errors.ts";
import type { ConnectionLimits } from "../http/connections.ts";

/** Files for other uses than public connections: operator listener, database, engines. */
const reservedFiles = 256;

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
  openFiles = openFilesMax(),
): ConnectionLimits {
  if (connectionsMax !== null && connectionsMax + reservedFiles > openFiles) {
    throw new OperatorError(
      `limits.connections is ${connectionsMax}, but this process may only open ${openFiles} files, ${reservedFiles} of them for other uses. Raise its limit (ulimit -n, LimitNOFILE in systemd), or lower limits.connections.`,
    );
  }
  // Half of the files: a request to an upstream takes a second one.
  const suited = Math.floor((openFiles - reservedFiles) / 2);
  const max = connectionsMax ?? Math.max(connectionsMin, Math.min(suited, connectionsDefaultMax));
  return {
    connectionsMax: max,
    connectionsPerAddressMax: connectionsPerAddressMax ?? Math.max(1, Math.floor(max * addressShare)),
    trustedProxies,
  };
}
