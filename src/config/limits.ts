/** The `limits` section: every limit of the service that does not belong to a plan or a key. */
import { limits } from "../limits/limits.ts";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

export type ServiceLimits = ReturnType<typeof readLimits>;

/** A message has 2 keys, or 10 if an SDK returns it with all of its fields set to null. */
const keysPerMessage = 16;
const keysMin = 32_768;

export function readLimits(section: Section) {
  const whole = (key: string, min: number, max: number, or: number) =>
    section.value(key, kind.whole(min, max), { or });
  const bodyBytesMax = whole("body_bytes", 1024, 268_435_456, limits.bodyBytes.most);
  const uploads = section.placed("upload_bytes", kind.whole(1024, 17_179_869_184), { or: 16 * bodyBytesMax });
  if (uploads.value < bodyBytesMax) {
    section.problem(
      uploads.where,
      `limits.upload_bytes: ${uploads.value} is less than limits.body_bytes (${bodyBytesMax}), so no body would fit`,
    );
  }
  const messagesMax = whole("messages", 1, 1_000_000, 2048);
  return {
    bodyBytesMax,
    /** Total of all request bodies that are being received or checked. */
    uploadBytesMax: uploads.value,
    /** Longest time to receive the body of a request. */
    uploadMs: whole("upload_seconds", 1, 3600, limits.bodyTime.most / 1000) * 1000,
    /** Bytes of bodies, and time of the main thread, for refused requests of one key. */
    refusedBytesPerMinute: whole("refused_bytes_per_minute", 1, 68_719_476_736, limits.refusedBytes.most),
    refusedMsPerMinute: whole("refused_milliseconds_per_minute", 1, 60_000, limits.refusedMs.most),
    /** Null: depends on the number of files that the process may open. */
    connectionsMax: section.optional("connections", kind.whole(1, 1_000_000)),
    /** Null: a quarter of `connectionsMax`. */
    connectionsPerAddressMax: section.optional("connections_per_address", kind.whole(1, 1_000_000)),
    /**
     * Addresses and networks without a limit for each address, whose `X-Forwarded-For` counts for
     * sign-ins. Not even loopback without a setting: any program of the machine connects from it.
     */
    trustedProxies: section.list(
      "trusted_proxies",
      kind.network,
      'a list of addresses and networks: ["10.0.0.0/8"]',
      { or: [] },
    ).values,
    messagesMax,
    /** Keys in the JSON of one request. */
    keysMax: whole("keys", 256, 16_000_000, Math.max(keysMin, keysPerMessage * messagesMax)),
    /** Requests that may wait for one model. */
    queueMax: whole("queue", 1, 100_000, 256),
    /** Time before a stop when `/readyz` reports "not ready" and requests are still accepted. */
    unreadyMs: whole("unready_seconds", 0, 300, 0) * 1000,
    drainMs: whole("drain_seconds", 0, 3600, 30) * 1000,
    streamIdleMs: whole("stream_idle_seconds", 1, 3600, 120) * 1000,
  };
}
