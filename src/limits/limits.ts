/**
 * The limits on clients: whom, what, how much, which refusal, which metric. Each limiter is made
 * with its row, and a test compares docs/operating/client-limits.md with this table.
 *
 * The limits of plans and keys are not here: ledger/rates.ts keeps them in the rows of accounts.
 */

export type Topic = "Connections" | "Bodies" | "Refused work" | "Shared time" | "Sign-in and pages";

export interface Limit {
  topic: Topic;
  what: string;
  /** Each of these has the amount. */
  of: "node" | "address" | "connection" | "body" | "request" | "account" | "key" | "session" | "model";
  /** By default, if there is a setting. */
  most: number | string;
  unit?: "bytes" | "ms";
  /** In the section `limits` of the configuration. */
  setting?: string;
  /** The consequence of more. A refusal is shown as its status and code. */
  beyond: string;
  /** The metric that shows it. Null: only the log does, or nothing is lost. */
  metric: string | null;
}

const overloaded = "`503 overloaded`";
const tooManySignIns = "`429 too_many_sign_ins`";
const tooManyAtOnce = "`429 concurrency_limit_exceeded`";
const timeout = "`408 request_timeout`, closed";
const requests = "inkwell_requests_total";
const refusedConnections = "inkwell_refused_connections_total";
const idleFirst = `closes the longest idle one, else ${overloaded}`;

const connection = { topic: "Connections", metric: null, beyond: "closed" } as const;
const connections = { topic: "Connections", beyond: idleFirst, metric: refusedConnections } as const;
const body = { topic: "Bodies", metric: requests } as const;
const uploadBytes = { topic: "Bodies", beyond: overloaded, metric: "inkwell_upload_bytes" } as const;
const uploads = { topic: "Bodies", beyond: tooManyAtOnce, metric: "inkwell_uploads" } as const;
const refused = { topic: "Refused work", beyond: "`429 too_many_refusals`" } as const;
const refusedBytes = { ...refused, unit: "bytes", metric: "inkwell_refused_bytes_total" } as const;
const refusedMs = { ...refused, unit: "ms", metric: "inkwell_refused_seconds_total" } as const;
const rest = { topic: "Refused work", beyond: "closed", metric: null } as const;
const time = { topic: "Shared time", unit: "ms", beyond: "waits", metric: null } as const;
const signIns = { topic: "Sign-in and pages", metric: "inkwell_sign_ins_total" } as const;
const pages = { topic: "Sign-in and pages", metric: null } as const;

const refusedBytesMost = 60 * 1024 * 1024;
const refusedMsMost = 1_200;
/** An account may have so many times the refused work of a key. */
export const accountFactor = 4;

export const limits = {
  connections: {
    ...connections,
    what: "connections of the public listener",
    of: "node",
    most: "half of the files, at most 8192",
    setting: "connections",
  },
  addressConnections: {
    ...connections,
    what: "the same; IPv6: of a /64 network",
    of: "address",
    most: "a quarter of `connections`",
    setting: "connections_per_address",
  },
  portalConnections: {
    ...connections,
    what: "connections of the portal; of an address a quarter",
    of: "node",
    most: "an eighth of the files, at most 512",
  },
  operatorConnections: {
    ...connections,
    what: "connections of the operator listener",
    of: "node",
    most: 128,
  },
  operatorAddressConnections: { ...connections, what: "the same", of: "address", most: 96 },
  headers: {
    ...connection,
    what: "time until the headers are complete",
    of: "connection",
    most: 15_000,
    unit: "ms",
    beyond: "`408`, closed",
  },
  keepAlive: { ...connection, what: "time without a request", of: "connection", most: 72_000, unit: "ms" },
  requestsAhead: {
    ...connection,
    what: "requests sent ahead of their responses",
    of: "connection",
    most: 16,
  },

  bodyBytes: {
    ...body,
    what: "bytes",
    of: "body",
    most: 4 * 1024 * 1024,
    unit: "bytes",
    setting: "body_bytes",
    beyond: "`413 request_too_large`",
  },
  uploadBytes: {
    ...uploadBytes,
    what: "all bodies that are being received or checked",
    of: "node",
    most: "16 times `body_bytes`",
    setting: "upload_bytes",
  },
  keyUploadBytes: { ...uploadBytes, what: "such bodies", of: "key", most: "a quarter of it" },
  accountUploadBytes: { ...uploadBytes, what: "such bodies", of: "account", most: "half of it" },
  keyUploads: { ...uploads, what: "number of such bodies", of: "key", most: "its `concurrent` plus 4" },
  accountUploads: {
    ...uploads,
    what: "number of such bodies",
    of: "account",
    most: "its `concurrent` plus 4",
  },
  bodyRate: {
    ...body,
    what: "average rate, after 10 s",
    of: "body",
    most: "at least 16 KiB per second",
    beyond: timeout,
  },
  bodyTime: {
    ...body,
    what: "time for a whole body",
    of: "body",
    most: 120_000,
    unit: "ms",
    setting: "upload_seconds",
    beyond: timeout,
  },
  keys: {
    ...body,
    what: "keys, all objects counted; four times as many values",
    of: "body",
    most: "32,768, or 16 for each of `messages`",
    setting: "keys",
    beyond: "`400 invalid_value`",
  },
  chunks: {
    ...body,
    what: "chunks without a content-length; and one per 64 bytes",
    of: "body",
    most: 16_384,
    beyond: "`413 request_too_large`",
  },

  refusedBytes: {
    ...refusedBytes,
    what: "bytes of bodies per minute",
    of: "key",
    most: refusedBytesMost,
    setting: "refused_bytes_per_minute",
  },
  accountRefusedBytes: {
    ...refusedBytes,
    what: "the same",
    of: "account",
    most: accountFactor * refusedBytesMost,
  },
  refusedMs: {
    ...refusedMs,
    what: "processor time per minute",
    of: "key",
    most: refusedMsMost,
    setting: "refused_milliseconds_per_minute",
  },
  accountRefusedMs: {
    ...refusedMs,
    what: "the same",
    of: "account",
    most: accountFactor * refusedMsMost,
  },
  restTime: { ...rest, what: "time for the rest of its body", of: "request", most: 5_000, unit: "ms" },
  restBytes: { ...rest, what: "rest of its body", of: "request", most: 16 * 1024 * 1024, unit: "bytes" },

  bodyTurn: {
    ...time,
    what: "parsing in one turn of the event loop",
    of: "node",
    most: 10,
  },
  waitingBodies: {
    ...body,
    topic: "Shared time",
    what: "bodies that wait to be parsed; as many again for accounts that have none waiting",
    of: "node",
    most: 1_024,
    beyond: overloaded,
  },
  largeMessages: {
    topic: "Shared time",
    what: "messages over 128 KiB to and from its servers, per turn",
    of: "model",
    most: 1,
    beyond: "waits",
    metric: null,
  },
  promptTime: {
    ...time,
    what: "the embedded engine's time for prompts in 2 s, while others are answered",
    of: "account",
    most: 200,
    beyond: `waits; after 15 s ${overloaded}`,
    metric: requests,
  },

  failedSignIns: {
    ...signIns,
    what: "failed sign-ins within a minute",
    of: "address",
    most: 10,
    beyond: tooManySignIns,
  },
  signInChecks: {
    ...signIns,
    what: "sign-ins checked at once",
    of: "address",
    most: 1,
    beyond: "waits",
  },
  waitingSignIns: {
    ...signIns,
    what: "sign-ins that wait",
    of: "address",
    most: 100,
    beyond: tooManySignIns,
  },
  keySignIns: {
    ...signIns,
    what: "sign-ins to the portal per minute",
    of: "key",
    most: 60,
    beyond: tooManySignIns,
  },
  changes: {
    ...pages,
    what: "[changes](portal.md#rights) in the portal per minute",
    of: "account",
    most: 60,
    beyond: "`429 too_many_changes`",
  },
  usageReads: {
    ...pages,
    what: "lists and sums of usage that the portal reads at once",
    of: "account",
    most: 1,
    beyond: "waits",
  },
  waitingUsageReads: { ...pages, what: "those that wait", of: "account", most: 31, beyond: overloaded },
  sessionStreams: {
    ...pages,
    what: "[streams](live.md#streams) of the operator API",
    of: "session",
    most: 4,
    beyond: tooManyAtOnce,
  },
  streams: { ...pages, what: "the same", of: "node", most: 128, beyond: tooManyAtOnce },
} as const satisfies Record<string, Limit>;
