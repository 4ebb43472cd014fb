/**
 * Ids of requests, which are also those of their holds and receipts: UUIDs of version 7 (RFC 9562), which begin with
 * the time. The ledger's indexes begin with them: with ids at random, a journal of 600,000 rows made a sixth of the
 * holds and settlements a second that it makes with these.
 */
import { randomUUID } from "node:crypto";

export function newRequestId(): string {
  const time = Date.now().toString(16).padStart(12, "0");
  // The version's digit stands at 14; the random rest, its variant included, is taken as it is.
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}
