/**
 * Describes each table of the ledger once, for both stores: its columns, their types, and the
 * conversions between a row and the cells of a database.
 *
 * Guarantees that a row has exactly the fields of its type. A cell of another type is a defect and
 * throws. Rows of accounts may be damaged, and are read by account-rows.ts.
 */

import { type AcceptedClock, trusts } from "../ledger/clock.ts";
import type { AppliedPlans } from "../ledger/plan.ts";
import {
  type AccountRow,
  accountStates,
  buckets,
  type ChargeRow,
  endings,
  type GrantRow,
  type HoldRow,
  type JournalRow,
  journalKinds,
  type KeyRow,
  type LaterGrantRow,
  portalRights,
  type RowPrice,
  type TokenCounts,
} from "../ledger/rows.ts";
import { type Alignment, alignments } from "../ledger/windows.ts";
import type { Credits, EpochMs } from "../units.ts";
import type { AuditJobRow } from "./audit-job.ts";
import type { ClockRow } from "./clock.ts";
import type { ContactRow } from "./contacts.ts";
import { type SessionRow, sessionKinds } from "./sessions.ts";
import { type ColumnType, tableOf } from "./table.ts";

/** The open grant of base or overage. */
const windowGrant = {
  isNullable: true,
  columns: {
    seq: "integer",
    amount: "integer",
    spent: "integer",
    held: "integer",
    fromMs: "integer",
    untilMs: "integer",
    anchorMs: "integer",
    plan: "text",
    version: "integer",
  },
} as const;

export const accountTable = tableOf<AccountRow>("account", {
  id: "text",
  plan: "text",
  nextPlan: "text?",
  state: accountStates,
  endsMs: "integer?",
  seq: "integer",
  atMs: "integer",
  createdMs: "integer",
  base: windowGrant,
  overage: windowGrant,
  additional: "grants",
  later: {
    isNullable: false,
    columns: { count: "integer", free: "integer", held: "integer", untilMs: "integer?" },
  },
  holds: "integer",
  used: "integer",
  requestsTatMs: "real",
  tokensTatMs: "real",
  tokensLimit: "integer?",
});

export const laterGrantTable = tableOf<LaterGrantRow>("later_grant", {
  account: "text",
  seq: "integer",
  amount: "integer",
  spent: "integer",
  held: "integer",
  isPayment: "boolean",
  untilMs: "integer?",
});

/** Identifies a later grant, for deletion. */
export const laterGrantKeyTable = tableOf<Pick<LaterGrantRow, "account" | "seq">>("later_grant", {
  account: "text",
  seq: "integer",
});

/** Whether and when an account ends. */
export const accountEndTable = tableOf<Pick<AccountRow, "state" | "endsMs">>("account", {
  state: accountStates,
  endsMs: "integer?",
});

/** Tokens and prices of a request: part of its hold and of its receipt. */
const metered = {
  promptTokens: "integer",
  cachedTokens: "integer",
  completionTokens: "integer",
  reasoningTokens: "integer",
  pricePrompt: "integer",
  priceCompletion: "integer",
  priceCachedPrompt: "integer",
} as const satisfies Record<keyof (TokenCounts & RowPrice), ColumnType>;

export const holdTable = tableOf<HoldRow>("hold", {
  account: "text",
  id: "text",
  key: "text",
  model: "text",
  createdMs: "integer",
  expiresMs: "integer",
  takings: "takings",
  extension: "integer",
  extended: "integer",
  meteredTokens: "integer",
  ...metered,
});

/** Identifies a hold, for deletion. */
export const holdKeyTable = tableOf<Pick<HoldRow, "account" | "id">>("hold", { account: "text", id: "text" });

export const journalTable = tableOf<JournalRow>("journal", {
  account: "text",
  seq: "integer",
  atMs: "integer",
  kind: journalKinds,
  op: "text?",
  by: "text",
  bucket: "text?",
  amount: "integer?",
  grantSeq: "integer?",
  note: "text?",
});

export const chargeTable = tableOf<ChargeRow>("charge", {
  account: "text",
  id: "text",
  seq: "integer",
  atMs: "integer",
  key: "text",
  model: "text",
  ending: endings,
  by: "text?",
  estimated: "boolean",
  late: "boolean",
  ...metered,
  cost: "integer",
  base: "integer",
  overage: "integer",
  additional: "integer",
  paid: "takings",
  shortfall: "integer",
});

export const grantTable = tableOf<GrantRow>("credit_grant", {
  account: "text",
  seq: "integer",
  bucket: buckets,
  amount: "integer",
  spent: "integer",
  fromMs: "integer",
  untilMs: "integer?",
  anchorMs: "integer?",
  plan: "text?",
  version: "integer?",
  payment: "text?",
  request: "text?",
});

/** The part of a key that requests change, after the two columns that identify it. */
const keyState = {
  account: "text",
  id: "text",
  requestsTatMs: "real",
  tokensTatMs: "real",
  tokensLimit: "integer?",
  holds: "integer",
  held: "integer",
  used: "integer",
  lastUsedMs: "integer?",
  budgetFromMs: "integer?",
  budgetUntilMs: "integer?",
  budgetAnchorMs: "integer?",
  budgetSpent: "integer?",
} as const;

export const keyStateTable = tableOf<Pick<KeyRow, keyof typeof keyState>>("api_key", keyState);

export const keyTable = tableOf<KeyRow>("api_key", {
  ...keyState,
  budget: "integer?",
  budgetEvery: "text?",
  budgetAlign: "text?",
  budgetTimezone: "text?",
  budgetByOperator: "boolean?",
  hash: "text",
  oldHash: "text?",
  oldUntilMs: "integer?",
  name: "text?",
  lastFour: "text",
  models: "texts",
  requestsPerMinute: "integer?",
  tokensPerMinute: "integer?",
  concurrent: "integer?",
  createdMs: "integer",
  expiresMs: "integer?",
  revokedMs: "integer?",
  portal: portalRights,
});

export const contactTable = tableOf<ContactRow>("account_contact", {
  account: "text",
  owner: "text?",
  email: "text?",
  note: "text?",
  externalId: "text?",
});

/** A plan version, with one field for each column. */
export interface PlanVersionRow {
  plan: string;
  version: number;
  createdMs: EpochMs;
  baseCredits: Credits;
  baseEvery: string;
  baseAlign: Alignment;
  overageCredits: Credits;
  overageEvery: string;
  overageAlign: Alignment;
  timezone: string;
  requestsPerMinute: number | null;
  tokensPerMinute: number | null;
  concurrent: number | null;
  models: readonly string[];
}

export const planVersionTable = tableOf<PlanVersionRow>("plan_version", {
  plan: "text",
  version: "integer",
  createdMs: "integer",
  baseCredits: "integer",
  baseEvery: "text",
  baseAlign: alignments,
  overageCredits: "integer",
  overageEvery: "text",
  overageAlign: alignments,
  timezone: "text",
  requestsPerMinute: "integer?",
  tokensPerMinute: "integer?",
  concurrent: "integer?",
  models: "texts",
});

export const planFileTable = tableOf<AppliedPlans>("plan_file", {
  epoch: "integer",
  fingerprint: "text",
  appliedMs: "integer",
  plans: "texts",
});

export const clockTable = tableOf<ClockRow>("clock", {
  trust: trusts,
  clockMs: "integer",
  elapsedMs: "integer",
  ledgerMs: "integer",
  bootId: "text?",
  bootMs: "integer?",
  accepts: "integer",
});

export const clockAcceptTable = tableOf<AcceptedClock>("clock_accept", {
  number: "integer",
  by: "text",
  ledgerMs: "integer",
  clockMs: "integer",
});

/** The table has one row. */
export const auditJobTable = tableOf<AuditJobRow>("audit_job", {
  run: "text?",
  startedMs: "integer?",
  aliveMs: "integer?",
  lastStartedMs: "integer?",
  lastEndedMs: "integer?",
  problems: "integer?",
  report: "text?",
  failedMs: "integer?",
  failure: "text?",
});

export const sessionTable = tableOf<SessionRow>("session", {
  hash: "text",
  kind: sessionKinds,
  owner: "text",
  createdMs: "integer",
  usedMs: "integer",
  idleMs: "integer",
  endsMs: "integer",
  endedMs: "integer?",
});
