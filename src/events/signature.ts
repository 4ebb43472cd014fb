/**
 * Signatures of Standard Webhooks 1.0 (https://www.standardwebhooks.com): HMAC-SHA256 of id, time
 * and body, in base64.
 */
import { createHmac } from "node:crypto";
import type { EpochMs } from "../units.ts";

const secretPrefix = "whsec_";

/**
 * Returns the headers of a request. During the rotation of a secret it has two signatures, so that
 * a receiver with either secret accepts it.
 */
export function signedHeaders(
  { id, body, nowMs }: { id: string; body: string; nowMs: EpochMs },
  secrets: readonly string[],
): Record<string, string> {
  const timestamp = String(Math.floor(nowMs / 1000));
  const signatures = secrets.map((secret) => {
    const key = Buffer.from(secret.slice(secretPrefix.length), "base64");
    return `v1,${createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64")}`;
  });
  return {
    "webhook-id": id,
    "webhook-timestamp": timestamp,
    "webhook-signature": signatures.join(" "),
  };
}
