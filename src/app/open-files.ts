/** How many connections the listener takes, by the number of files that the process may open. */
import { readFileSync } from "node:fs";
import type { ServiceLimits } from "../config/limits.ts";
import { OperatorError } from "../errors.ts";
import type { ConnectionLimits } from "../http/connections.ts";

/**
 * For everything but public connections: the operator's listener, the database, engines, files.
 */
const reservedFiles = 256;

/** Assumed if the system does not say; the usual limit of a shell. */
const openFilesUsual = 1024;

const connectionsDefaultMax = 8192;
const connectionsMin = 16;

/** Part of the connections that one address may have unless configured otherwise. */
const addressShare = 1 / 4;

/**
 * Most files that this process may open. Node raises its soft limit to the hard one when it
 * starts.
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
