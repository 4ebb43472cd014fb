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
  of:
    | "node"
    | "address"
    | "connection"
    | "body"
    | "request"
    | "account"
    | "key"
    | "session"
    | "model"
    | "mailbox"
    | "maker";
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
const atOnce = "`429 concurrency_limit_exceeded`";
const slow = "`408 request_timeout`, closed";
const tooManySignIns = "`429 too_many_sign_ins`";
const tooManyRefusals = "`429 too_many_refusals`";
const inRequests = "inkwell_requests_total";
const inRefusedBytes = "inkwell_refused_bytes_total";
const inRefusedSeconds = "inkwell_refused_seconds_total";
const inConnections = "inkwell_refused_connections_total";

type Shared = Pick<Limit, "topic" | "metric" | "beyond" | "unit">;

/** The limits of a topic with the same consequence, metric and unit. */
function group(topic: Topic, beyond: string, metric: string | null = null, unit?: "bytes" | "ms") {
  const shared: Shared = { topic, beyond, metric, ...(unit === undefined ? {} : { unit }) };
  return <Most extends number | string>(of: Limit["of"], most: Most, what: string, setting?: string) => ({
    ...shared,
    of,
    most,
    what,
    ...(setting === undefined ? {} : { setting }),
  });
}

const connections = group("Connections", overloaded, inConnections);
const connectionTime = group("Connections", "closed", null, "ms");
const uploadBytes = group("Bodies", overloaded, "inkwell_upload_bytes");
const uploads = group("Bodies", atOnce, "inkwell_uploads");
const bodyTime = group("Bodies", slow, inRequests, "ms");
const refusedBytes = group("Refused work", tooManyRefusals, inRefusedBytes, "bytes");
const refusedMs = group("Refused work", tooManyRefusals, inRefusedSeconds, "ms");
const signIns = group("Sign-in and pages", tooManySignIns, "inkwell_sign_ins_total");
const mailedLinks = group("Sign-in and pages", "no mail");
const pageReads = group("Sign-in and pages", "`429 rate_limit_exceeded`");

const mib = 1024 * 1024;

export const limits = {
  connections: connections(
    "node",
    "half of the files, at most 8192",
    "connections of the public listener",
    "connections",
  ),
  addressConnections: connections(
    "address",
    "a quarter of `connections`",
    "the same; IPv6: of a /64 network",
    "connections_per_address",
  ),
  portalConnections: connections(
    "node",
    "an eighth of the files, at most 512",
    "connections of the portal; of an address a quarter",
  ),
  operatorConnections: connections("node", 128, "connections of the operator listener"),
  operatorAddressConnections: connections("address", 96, "the same"),
  headers: group(
    "Connections",
    "`408`, closed",
    null,
    "ms",
  )("connection", 15_000, "time until the headers are complete"),
  keepAlive: connectionTime("connection", 72_000, "time without a request"),
  unread: connectionTime(
    "connection",
    30_000,
    "time in which its client reads nothing of an answer of portal or operator listener",
  ),
  requestsAhead: group("Connections", "closed")("connection", 16, "requests sent ahead of their responses"),

  bodyBytes: group("Bodies", "`413 request_too_large`", inRequests, "bytes")(
    "body",
    4 * mib,
    "bytes",
    "body_bytes",
  ),
  uploadBytes: uploadBytes(
    "node",
    "16 times `body_bytes`",
    "all bodies that are being received or checked",
    "upload_bytes",
  ),
  accountUploadBytes: uploadBytes("account", "a quarter of it", "such bodies"),
  accountUploads: uploads("account", "the `concurrent` of its plan plus 4", "number of such bodies"),
  bodyRate: bodyTime("body", "at least 16 KiB per second", "average rate, after 10 s"),
  bodyTime: bodyTime("body", 120_000, "time for a whole body", "upload_seconds"),
  keys: group("Bodies", "`400 invalid_value`", inRequests)(
    "body",
    "32,768, or 16 for each of `messages`",
    "keys, all objects counted; four times as many values",
    "keys",
  ),
  chunks: group("Bodies", "`413 request_too_large`", inRequests)(
    "body",
    16_384,
    "chunks without a content-length; and one per 64 bytes",
  ),

  refusedBytes: refusedBytes("account", 120 * mib, "bytes of bodies per minute", "refused_bytes_per_minute"),
  refusedMs: refusedMs("account", 2_400, "processor time per minute", "refused_milliseconds_per_minute"),
  restTime: group("Refused work", "closed", null, "ms")("request", 5_000, "time for the rest of its body"),
  restBytes: group("Refused work", "closed", null, "bytes")("request", 16 * mib, "rest of its body"),

  bodyTurn: group("Shared time", "waits", null, "ms")("node", 10, "parsing in one turn of the event loop"),
  waitingBodies: group("Shared time", overloaded, inRequests)(
    "node",
    1_024,
    "bodies that wait to be parsed; as many again for accounts that have none waiting",
  ),
  largeMessages: group("Shared time", "waits")(
    "model",
    1,
    "messages over 128 KiB to and from its servers, per turn",
  ),
  promptTime: group(
    "Shared time",
    `waits; after 15 s ${overloaded}`,
    inRequests,
    "ms",
  )("account", 200, "the embedded engine's time for prompts in 2 s, while others are answered"),

  keyReads: group("Shared time", "`429 rate_limit_exceeded`", inRequests)(
    "key",
    200,
    "reads of models and balance, or of the operator API, in 2 s",
  ),

  signIns: signIns("address", 120, "sign-ins per minute; one with OpenID Connect counts twice"),
  joins: signIns(
    "address",
    600,
    "people who join by a [link](links.md) per minute; a class sits behind one address",
  ),
  keySignIns: signIns("key", 60, "sign-ins to the portal per minute; as many of a person by a link"),
  operatorKeys: group("Sign-in and pages", "`409 too_many_keys`")("maker", 50, "operator keys that work"),
  newLinks: signIns("address", 60, "requests for a new [link](invitations.md) per minute"),
  mailedLinks: mailedLinks("mailbox", 3, "such requests per hour"),
  waitingLinks: mailedLinks("node", 1_000, "such requests that wait for their mail"),
  changes: group("Sign-in and pages", "`429 too_many_changes`")(
    "account",
    60,
    "[changes](portal.md#rights) in the portal per minute",
  ),
  usageReads: group("Sign-in and pages", "waits")(
    "account",
    1,
    "lists and sums of usage that the portal reads at once",
  ),
  waitingUsageReads: group("Sign-in and pages", overloaded)("account", 31, "those that wait"),
  sessionReads: pageReads("session", 240, "reads of the [live state](live.md) per minute"),
  accountReads: pageReads("account", 600, "such reads in the portal per minute"),
};
