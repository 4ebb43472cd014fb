/**
 * The refusals of the ledger, with their sentences. The kernel refuses with plain data: a kind,
 * and the values of its sentence. The APIs and the command line make a `Refusal` of it. A sentence
 * names no command and no endpoint: they add their own advice.
 */
import { type Code, catalogue, type Entry, Refusal } from "../errors.ts";
import { unknownName } from "../spelling.ts";
import { type EpochMs, exactCredits, type MicroCredits } from "../units.ts";
import { type RateName, type Rates, rateLimits } from "./rate-limits.ts";
import type { JournalRow, WindowBucket } from "./rows.ts";
import { calendarPeriodRule } from "./windows.ts";

const unchanged = "Nothing has changed.";
export const newIdNeeded = `${unchanged} Use a new id for another change.`;

type Account = { account: string };
type Key = { key: string };
/** Whose limit it is, or who holds the rest: all requests of the account, or those of the key. */
type Scope = { scope: "account" | "key" };
/** A time is named only if it is known. */
type UnusableKey = "was revoked" | "has expired" | "is not known" | `expired at ${string}`;
/** `entry`: the fact of the earlier operation with this id. */
type Earlier = { entry: JournalRow };

/** The kinds that share the code `invalid_value`, and the field at fault. */
const faults = {
  promotion_over: "expires_at",
  unknown_plan: "plan",
  retired_plan: "plan",
  no_calendar_period: "spending_caps",
  cap_twice: "spending_caps",
} as const;

type Fault = keyof typeof faults;

/** The sentence of each kind. A kind is a fault, or the code itself. */
const sentences = {
  account_not_found: ({ account }: Account) => `There is no account ${account}.`,
  /** `how`: "on plan pro". */
  account_exists: ({ account, how }: Account & { how: string }) =>
    `Account ${account} already exists, opened ${how}.`,
  /**
   * The row of the account is invalid, or a hold needs a plan that the database does not have.
   * Nothing moves until an operator repairs it.
   */
  balance_unavailable: (_: Account & { problem: string }) =>
    "The balance of this account cannot be read. Nothing was charged. The operator of this service can mend it.",
  account_closed: ({ account }: Account) => `Account ${account} is closed. ${unchanged}`,
  /** The account gives no more credits. One whose end has passed is closed. */
  account_suspended: ({ state }: { state: "suspended" | "closed" }) =>
    `This account is ${state}. Its balance can still be read. The operator of this service can say why.`,
  invalid_api_key: ({ why }: { why: UnusableKey }) => `This API key ${why}. Use another one.`,
  credits_reserved: ({ scope }: { scope: keyof typeof holders; retryAfterMs: number }) =>
    `${holders[scope]} that are still running. Try again when some have ended, or ask for fewer max_tokens in each.`,
  /** `retryAfterMs`: null if this request alone exceeds the limit, so waiting does not help. */
  rate_limit_exceeded: (limited: Scope & { of: RateName; rates: Rates; retryAfterMs: number | null }) => {
    const { scope, of, rates, retryAfterMs } = limited;
    const most = rates[of]?.limit;
    const what = most === 1 ? of.slice(0, -1) : of;
    const limit = `The limit of ${owners[scope]} is ${most} ${what} per ${rateLimits[of].period}.`;
    return retryAfterMs === null
      ? `${limit} This prompt alone has more ${of} than that; send a shorter one.`
      : `${limit} Try again in ${Math.max(1, Math.ceil(retryAfterMs / 1000))} s.`;
  },
  concurrency_limit_exceeded: ({ scope, limit }: Scope & { limit: number }) =>
    `The limit of ${owners[scope]} is ${limit} ${limit === 1 ? "request" : "requests"} running at once. Try again when one has ended.`,
  operation_differs: ({ account, entry }: Account & Earlier) =>
    entry.account === account
      ? `Operation "${idIn(entry)}" made another change before: ${textOf(entry)}. ${newIdNeeded}`
      : `Operation "${idIn(entry)}" changed account ${entry.account} before. ${newIdNeeded}`,
  payment_differs: (values: { payment: string; beforeMicro: MicroCredits; nowMicro: MicroCredits }) =>
    `Payment "${values.payment}" was counted before, with ${exactCredits(values.beforeMicro)} credits instead of ${exactCredits(values.nowMicro)}. ${newIdNeeded}`,
  payment_used: ({ payment, account }: Account & { payment: string }) =>
    `Payment "${payment}" was credited to account ${account} before. A payment counts once. ${newIdNeeded}`,
  payment_not_found: ({ account, payment }: Account & { payment: string }) =>
    `Account ${account} has no payment "${payment}". ${unchanged}`,
  refund_differs: ({ entry }: Earlier) =>
    `Refund "${idIn(entry)}" was made before, with other values: ${textOf(entry)}. ${newIdNeeded}`,
  refund_used: ({ entry }: Earlier) =>
    `Refund "${idIn(entry)}" was made on account ${entry.account} before. ${newIdNeeded}`,
  refund_too_large: ({ payment, refundableMicro }: { payment: string; refundableMicro: MicroCredits }) =>
    `Of payment "${payment}", ${exactCredits(refundableMicro)} credits are neither spent nor refunded. A refund cannot be larger. ${unchanged}`,
  promotion_over: ({ untilMs }: { untilMs: EpochMs }) =>
    `The credits would have ended already, at ${timeOf(untilMs)}. Choose a later time.`,
  request_not_found: ({ account, request }: Account & { request: string }) =>
    `Account ${account} was not charged for a request "${request}". ${unchanged}`,
  request_running: ({ request }: { request: string }) =>
    `Request "${request}" is still running, so its charge is not known. ${unchanged} Try again when it has ended.`,
  memo_too_large: ({ request, leftMicro }: { request: string; leftMicro: MicroCredits }) =>
    `Of what was paid for request "${request}", ${exactCredits(leftMicro)} credits are not made up for yet. A memo cannot be larger. ${unchanged}`,
  grant_not_found: ({ account, grant }: Account & { grant: number }) =>
    `Account ${account} has no promotional credits with the number ${grant} that are still open. ${unchanged} A payment is taken back by a refund.`,
  too_few_credits: ({ account, freeMicro }: Account & { freeMicro: MicroCredits }) =>
    `Account ${account} has ${exactCredits(freeMicro)} promotional credits that no request holds. An adjustment cannot take away more, and never takes what was paid for: that is a refund. ${unchanged}`,
  /** The bucket would exceed the safe integers. */
  too_many_credits: ({ account }: Account) =>
    `Account ${account} cannot hold that many credits. ${unchanged}`,
  /** Accounts can only be put on a plan that the current plans section has. */
  unknown_plan: ({ plan, plans }: { plan: string; plans: readonly string[] }) =>
    unknownName("plan", plan, plans),
  retired_plan: ({ plan }: { plan: string }) =>
    `The plan "${plan}" is retired: it is not among the current plans. Choose another plan, or put it back into the configuration and apply it.`,
  /** These buckets have other windows in the new plan. The base window ends at the refresh. */
  window_differs: (values: { plan: string; buckets: readonly WindowBucket[]; refreshMs: EpochMs }) =>
    `The plan ${values.plan} has another window for ${values.buckets.join(" and ")}, so it cannot change now. ${unchanged} At the refresh, ${timeOf(values.refreshMs)}, it can (refresh). Or begin a new window now (new_window).`,
  external_id_used: ({ externalId, account }: Account & { externalId: string }) =>
    `The external id "${externalId}" belongs to account ${account}. ${unchanged}`,
  /** The person before the page reads these five. */
  invalid_link: (_: object) =>
    "This link is not valid. Perhaps it was replaced by a newer one. Ask whoever gave it to you.",
  link_ended: (_: object) =>
    "This link has ended, so nobody can join by it any more. Ask whoever gave it to you.",
  link_full: (_: object) =>
    "All seats of this link are taken. Ask whoever gave it to you for more seats. If you have joined before, sign in the way you did.",
  /** In this browser, somebody has joined by this link longer ago than a repetition takes. */
  already_joined: (_: object) =>
    "Somebody has joined by this link in this browser before. If it was you, sign in with a key of yours, or ask whoever gave you the link for a link to your account. If not, open the link in another browser, or in a private window.",
  invalid_invitation: (_: object) =>
    "This link is not valid. It works once, for 7 days, and a newer link ends it. Ask for a new link.",
  key_not_found: ({ key }: Key) => `There is no key "${key}".`,
  key_revoked: ({ key }: Key) => `Key ${key} is revoked, which is final. ${unchanged}`,
  /** An expired key gets no new secret. */
  key_expired: ({ key, expiresMs }: Key & { expiresMs: EpochMs }) =>
    `Key ${key} expired at ${timeOf(expiresMs)}. Set a later expiry first.`,
  /** The key, or the one that creates it, is not as the caller has seen it. */
  key_changed: (_: object) =>
    "A key was changed by someone else at the same time. Nothing has changed here. Look at it again.",
  /** `working`: as many keys work as the plan of a person allows. */
  too_many_keys: ({ of, most }: { of: "all" | "working"; most: number }) => {
    if (of === "all")
      return `The account has ${most} keys, ended keys included, which is the most. Use one of them, or ask the operator for another.`;
    if (most === 0) return "Your plan lets people make no keys. Ask the operator of this service for one.";
    return `Your plan allows ${most === 1 ? "one key" : `${most} keys`} at the same time. Revoke one first.`;
  },
  no_calendar_period: ({ name, every }: { name: string; every: string }) =>
    `The period of the cap "${name}" must be ${calendarPeriodRule}, not ${every}.`,
  /** Two caps of a key that count the same. */
  cap_twice: ({ name }: { name: string }) =>
    `Two caps have the name "${name}" and the same period. Give one of them another name.`,
} satisfies { [K in Code | Fault]?: (values: never) => string };

type Kind = keyof typeof sentences;
type Values = { [K in Kind]: Parameters<(typeof sentences)[K]>[0] };

/** What some kinds have beside the values of their sentence. */
interface Extras {
  rates?: Rates;
  retryAfterMs?: number | null;
  account?: string;
  problem?: string;
}

/** A refusal of one of these kinds, as plain data. */
export type Refused<K extends Kind = Kind> = { [P in K]: { kind: P } & Values[P] & Extras }[K];

const sentenceOf: { [K in Kind]: (values: Values[K]) => string } = sentences;

export function refusalOf<K extends Kind>(refused: Refused<K>): Refusal {
  const { kind, rates, retryAfterMs, account, problem }: { kind: Kind } & Extras = refused;
  const code = isFault(kind) ? "invalid_value" : kind;
  const { param }: Entry = catalogue[code];
  return new Refusal(code, sentenceOf[refused.kind](refused), {
    param: isFault(kind) ? faults[kind] : param,
    detail: problem === undefined ? undefined : `account ${account}: ${problem}`,
    rates,
    retryAfterSeconds: typeof retryAfterMs === "number" ? retryAfterMs / 1000 : undefined,
    waitingHelps: retryAfterMs === null ? false : undefined,
  });
}

function isFault(kind: Kind): kind is Fault {
  return kind in faults;
}

const owners = { key: "this key", account: "this account's plan" };
const holders = {
  plan: "The rest of a cap of this account is held by its requests",
  key: "The rest of a cap of this key is held by its requests",
  account: "The credits that are left are held by requests of this account",
};

function timeOf(ms: EpochMs): string {
  return new Date(ms).toISOString();
}

/** Returns the id that the sender of an operation chose. */
function idIn({ op }: JournalRow): string {
  return op?.replace(/^\w+:/, "") ?? "";
}

/** `plan {"at":"refresh","plan":"pro"}` */
function textOf({ kind, subject, after }: JournalRow): string {
  return [kind, subject, after].filter((part) => part !== null).join(" ");
}
