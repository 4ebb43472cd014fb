/**
 * The rows of the ledger. Every store has tables with these columns (store/migrations). Amounts
 * are whole micro-credits. Times are milliseconds since the epoch. Every row is of one account.
 *
 * The facts of an account are numbered without gaps: journal entries, with the grants that they
 * begin, and charges. They never change. The audit computes the rows of accounts and keys again
 * from the facts and the open holds.
 */
import type { EpochMs, MicroCredits } from "../units.ts";
import { cappedColumns, cappedFields, keyCap } from "./cap-rows.ts";
import type { Columns, RowOf } from "./columns.ts";

/** In spending order. */
export const buckets = ["base", "overage", "additional"] as const;
export type Bucket = (typeof buckets)[number];

/** The buckets that refill in windows. */
export const windowBuckets = ["base", "overage"] as const;
export type WindowBucket = (typeof windowBuckets)[number];

/** Amounts in the three buckets. */
export type BucketAmounts = Record<Bucket, MicroCredits>;

/** A grant that credits can be taken from. */
const openGrant = {
  /** Number of its journal entry. */
  seq: "integer",
  /** With its changes. */
  amountMicro: "micro",
  /** Credits that are charged to it, and those that it carried in from the window before. */
  spentMicro: "micro",
  /** Credits that open holds have taken from it. */
  heldMicro: "micro",
} as const satisfies Columns;

/** The open grant of base or overage. After a change to a smaller plan, it can lack credits. */
const windowGrant = {
  ...openGrant,
  fromMs: "ms",
  untilMs: "ms",
  anchorMs: "ms",
  /** The plan version whose rule the window follows. */
  plan: "text",
  version: "integer",
} as const satisfies Columns;
export interface WindowGrant extends RowOf<typeof windowGrant> {}

/** Credits that were paid for, or given. */
const additionalGrant = {
  ...openGrant,
  isPayment: "boolean",
  /** When it closes. Payments have no end. */
  untilMs: "ms?",
} as const satisfies Columns;
export interface AdditionalGrant extends RowOf<typeof additionalGrant> {}

/** Sums of the open additional grants that are not in the row of their account. */
const laterGrants = {
  count: "integer",
  /** Neither spent nor held. */
  freeMicro: "micro",
  heldMicro: "micro",
  /** The first end among them. */
  untilMs: "ms?",
} as const satisfies Columns;
export interface LaterGrants extends RowOf<typeof laterGrants> {}

/** `closed` is final. A suspended account takes no new holds. */
export const accountStates = ["active", "suspended", "closed"] as const;
export type AccountState = (typeof accountStates)[number];

/** The limits of plans and keys; null is no limit. All lists of limits follow from this one. */
export const limitColumns = {
  requestsPerMinute: "integer?",
  tokensPerMinute: "integer?",
  concurrent: "integer?",
} as const satisfies Columns;
export interface LimitRow extends RowOf<typeof limitColumns> {}

/** What the limits of an account or a key have counted. */
const countColumns = {
  /** Number of open holds. */
  holds: "integer",
  /**
   * GCRA: theoretical arrival time of requests and tokens per minute, with fractions of a
   * millisecond.
   */
  requestsTatMs: "real",
  tokensTatMs: "real",
  /** The limit of tokens per minute with which `tokensTatMs` was counted. */
  tokensLimit: "integer?",
} as const satisfies Columns;
export interface CountRow extends RowOf<typeof countColumns> {}

export const uncounted: CountRow = { holds: 0, requestsTatMs: 0, tokensTatMs: 0, tokensLimit: null };

function namesOf<C extends Columns>(columns: C): (keyof C)[] {
  return Object.keys(columns) as (keyof C)[];
}

export const limitFields = namesOf(limitColumns);
export const countFields = namesOf(countColumns);

/** Returns the limits of a row, with null for those that are absent. */
export function limitsIn(row: { [Name in keyof LimitRow]?: LimitRow[Name] | undefined }): LimitRow {
  const values = limitFields.map((name) => [name, row[name] ?? null]);
  return Object.fromEntries(values);
}

/**
 * The present state of an account. Its open grants are in one row, so that one lock protects a
 * decision.
 */
export const accountColumns = {
  id: "text",
  plan: "text",
  /** The plan that takes effect at the end of the base window. */
  nextPlan: "text?",
  /** When the account got its plan. */
  planSinceMs: "ms",
  state: accountStates,
  /** The account closes at this time. */
  endsMs: "ms?",
  /** Number of the last fact. Numbers have no gaps and start at 1. */
  seq: "integer",
  /** The time of the last fact. No fact is dated earlier than the one before it. */
  atMs: "ms",
  createdMs: "ms",

  /** Null: the account is closed. */
  base: { columns: windowGrant, isNullable: true },
  overage: { columns: windowGrant, isNullable: true },
  /** The first ones in spending order. */
  additional: { items: additionalGrant },
  later: { columns: laterGrants },

  ...countColumns,
  ...cappedColumns,
} as const satisfies Columns;
export interface AccountRow extends RowOf<typeof accountColumns> {}

/** Whether an account is closed, or closes with its next use because its end has passed. */
export function isClosedAt({ state, endsMs }: Pick<AccountRow, "state" | "endsMs">, atMs: EpochMs): boolean {
  return state === "closed" || (endsMs !== null && endsMs <= atMs);
}

/** An open additional grant beyond those in the row of its account. */
export const laterGrantColumns = { account: "text", ...additionalGrant } as const satisfies Columns;
export interface LaterGrantRow extends RowOf<typeof laterGrantColumns> {}

/** Tokens of a request: the checkpoint of a hold, or the final counts of a receipt. */
const tokenCounts = {
  promptTokens: "integer",
  cachedTokens: "integer",
  completionTokens: "integer",
  reasoningTokens: "integer",
} as const satisfies Columns;
export interface TokenCounts extends RowOf<typeof tokenCounts> {}

export const noTokens: TokenCounts = {
  promptTokens: 0,
  cachedTokens: 0,
  completionTokens: 0,
  reasoningTokens: 0,
};

/** Returns the counts alone, without the other fields of a row or a usage. */
export function countsOf(usage: TokenCounts): TokenCounts {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  return { promptTokens, cachedTokens, completionTokens, reasoningTokens };
}

/** Prices at the time of the hold. A later change of the configuration does not affect them. */
const rowPrice = {
  pricePrompt: "integer",
  priceCompletion: "integer",
  priceCachedPrompt: "integer",
} as const satisfies Columns;
export interface RowPrice extends RowOf<typeof rowPrice> {}

/** Credits that a hold or a charge took from a grant. */
const taking = {
  /** Number of the grant. */
  grant: "integer",
  bucket: buckets,
  amountMicro: "micro",
} as const satisfies Columns;
export interface Taking extends RowOf<typeof taking> {}

/** An open hold. Ending one deletes the row and writes a charge. */
export const holdColumns = {
  account: "text",
  /** The request id that the client sees. */
  id: "text",
  key: "text",
  model: "text",
  createdMs: "ms",
  expiresMs: "ms",
  /** One for each grant, in the order in which they were first taken from. */
  takings: { items: taking },
  /** Number of the last extension, and the credits that it took. 0: none. */
  extension: "integer",
  extendedMicro: "micro",
  /** Prompt tokens that the hold counted against tokens per minute. */
  meteredTokens: "integer",
  ...tokenCounts,
  ...rowPrice,
} as const satisfies Columns;
export interface HoldRow extends RowOf<typeof holdColumns> {}

export const journalKinds = [
  /** The account was opened on a plan. */
  "open",
  /** A window of base or overage began. */
  "window",
  /** The plan was changed, or a change was scheduled or cancelled. */
  "plan",
  /** A change of the plan changed the amount of an open grant. */
  "change",
  "payment",
  "promotion",
  "memo",
  "adjust",
  "refund",
  "suspend",
  "resume",
  /** The time at which the account closes was set. */
  "end",
  "close",
  /** A key was created, changed or revoked. */
  "key",
] as const;
export type JournalKind = (typeof journalKinds)[number];

/** A fact about an account, apart from charges. */
export const journalColumns = {
  account: "text",
  seq: "integer",
  atMs: "ms",
  kind: journalKinds,
  /** Id of the operation, unique in the installation. Null: time or another entry caused it. */
  op: "text?",
  /** The operator, the holder of a key, or the service that did it. */
  by: "text",
  /** The bucket that it changes, and by how much. */
  bucket: [...buckets, null],
  amountMicro: "micro?",
  /** Number of the grant that it changes. */
  grantSeq: "integer?",
  /** The key, the payment, or the request of a memo. */
  subject: "text?",
  /**
   * What it has replaced and set, as JSON (fact-values.ts). `after` has each field that the
   * operation named, also if it did not change: repetitions are compared by it.
   */
  before: "text?",
  after: "text?",
  /** What the operation has led to: of a key, the zone that its caps took and its new secret. */
  outcome: "text?",
} as const satisfies Columns;
export interface JournalRow extends RowOf<typeof journalColumns> {}

/** The beginning of a grant: more of its journal entry. */
export const grantColumns = {
  account: "text",
  /** Number of the journal entry. */
  seq: "integer",
  bucket: buckets,
  amountMicro: "micro",
  /** Spent credits that a new window within a period carried in. */
  spentMicro: "micro",
  fromMs: "ms",
  untilMs: "ms?",
  /** Null for additional, as the two fields after it. */
  anchorMs: "ms?",
  plan: "text?",
  version: "integer?",
  /** Id of the payment, unique in the installation. */
  payment: "text?",
  /** The request that a memo is about. */
  requestId: "text?",
} as const satisfies Columns;
export interface GrantRow extends RowOf<typeof grantColumns> {}

/** How a request ended. docs/ledger.md lists the charge of each ending. */
export const endings = [
  "stop",
  "length",
  "credits",
  "cap",
  "client_gone",
  "stopped",
  "engine_failed",
  "refused",
  "shutdown",
  "expired",
] as const;
export type Ending = (typeof endings)[number];

/**
 * One change of what a request cost, found by the request id that the client received. Appended
 * when a hold ends. A settlement after the expiry appends another line with the difference.
 * Reports and receipts add the lines up.
 */
export const chargeColumns = {
  account: "text",
  /** The hold, which is the request id. */
  id: "text",
  seq: "integer",
  atMs: "ms",
  key: "text",
  /** The version of the account's plan whose caps counted it. 0: the plan could not be read. */
  planVersion: "integer",
  model: "text",
  ending: endings,
  /** The operator who stopped the request. */
  by: "text?",
  estimated: "boolean",
  /** Something odd about the upstream's counts: a line without data of the request. */
  note: "text?",
  /** The line has the difference to a charge that an expiry made before. */
  late: "boolean",
  ...tokenCounts,
  ...rowPrice,
  /** tokens x prices = cost = paid + shortfall. */
  costMicro: "micro",
  /** Sums of `paid` by bucket. */
  baseMicro: "micro",
  overageMicro: "micro",
  additionalMicro: "micro",
  paid: { items: taking },
  /** The part of the cost that the account could not pay. */
  shortfallMicro: "micro",
} as const satisfies Columns;
export interface ChargeRow extends RowOf<typeof chargeColumns> {}

/** What a key may do in the portal: see itself, or manage all keys of its account. */
export const portalRights = ["own", "account"] as const;
export type PortalRights = (typeof portalRights)[number];

/**
 * The front end of a key: a program with people behind it, each with an account of their own. The
 * key never changes it.
 */
const actsFor = {
  /** Keys with the same name act for the same people. */
  name: "text",
  /** The header that names the person, in lower case. */
  header: "text",
  /** The headers with their name and their e-mail address, for operators to read. Null: none. */
  nameHeader: "text?",
  emailHeader: "text?",
  /** The plan of the account that an unknown person gets. Null: unknown people are refused. */
  plan: "text?",
  /** The most accounts that the front end opens in a day. Null if it opens none. */
  newAccountsPerDay: "integer?",
} as const satisfies Columns;
export interface ActsFor extends RowOf<typeof actsFor> {}

/**
 * The settings of a key, apart from its caps: what its creator chooses, and a change can set.
 * All lists of settings follow from this one.
 */
const settingColumns = {
  name: "text?",
  /** Model ids or `*`. They restrict the models of the plan. */
  models: "texts",
  ...limitColumns,
  expiresMs: "ms?",
  portal: portalRights,
} as const satisfies Columns;
export interface SettingRow extends RowOf<typeof settingColumns> {}

/** Settings of which some are absent. */
export type SomeSettings = { [Name in keyof SettingRow]?: SettingRow[Name] | undefined };

/** Nobody has limited the key. */
const defaultSettings: SettingRow = {
  name: null,
  models: ["*"],
  ...limitsIn({}),
  expiresMs: null,
  portal: "own",
};

const settingNames = namesOf(settingColumns);

/** Returns the settings alone, with the defaults of those that are absent. */
export function settingsIn(given: SomeSettings): SettingRow {
  const values = settingNames.map((name) => [name, given[name] ?? defaultSettings[name]]);
  return Object.fromEntries(values);
}

/** An API key. Only the SHA-256 of the key is stored. */
export const keyColumns = {
  id: "text",
  account: "text",
  /** SHA-256 of the whole key, lower-case hex. */
  hash: "text",
  /** Last four characters, so that people can recognise their keys. */
  lastFour: "text",
  ...settingColumns,
  createdMs: "ms",
  revokedMs: "ms?",
  lastUsedMs: "ms?",
  ...countColumns,
  caps: { items: keyCap },
  ...cappedColumns,

  /** SHA-256 of the secret before the last rotation, and until when it is valid. */
  oldHash: "text?",
  oldUntilMs: "ms?",

  /**
   * Null: its requests are those of its account. Otherwise other accounts pay them, and the limits
   * and the caps of the key count them all.
   */
  actsFor: { columns: actsFor, isNullable: true },
} as const satisfies Columns;
export interface KeyRow extends RowOf<typeof keyColumns> {}

/** The fields of a key that requests change. */
export const keyStateFields = [
  "lastUsedMs",
  ...countFields,
  ...cappedFields,
] as const satisfies (keyof KeyRow)[];

/** The fields of a key that say nothing about what its holder may do. */
export const noAuthority = [
  "name",
  "lastFour",
  "createdMs",
  ...keyStateFields,
  "oldHash",
  "oldUntilMs",
] as const satisfies (keyof KeyRow)[];

/** Whether a key is neither revoked nor expired. */
export function works(
  { revokedMs, expiresMs }: Pick<KeyRow, "revokedMs" | "expiresMs">,
  atMs: EpochMs,
): boolean {
  return revokedMs === null && (expiresMs === null || expiresMs > atMs);
}

export type KeyAuthority = Omit<KeyRow, (typeof noAuthority)[number]>;
