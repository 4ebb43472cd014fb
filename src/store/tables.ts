/**
 * Describes each table of the ledger once, for both stores: its columns, their types, and the
 * conversions between a row and the cells of a database.
 *
 * Guarantees that a row has exactly the fields of its type. A cell of another type is a defect and
 * throws. Rows of accounts may be damaged, and are read by account-rows.ts.
 */

import type { AcceptedClock } from "../ledger/clock.ts";
import type { AppliedPlans } from "../ledger/plan.ts";
import {
  type AccountRow,
  accountStates,
  type ChargeRow,
  endings,
  type GrantRow,
  grantCauses,
  type HoldRow,
  type JournalRow,
  journalKinds,
  type KeyRow,
  portalRights,
  type RowPrice,
  type TokenCounts,
  windowBuckets,
} from "../ledger/rows.ts";
import type { Credits, EpochMs } from "../units.ts";
import type { AuditJobRow } from "./audit-job.ts";
import type { ClockRow } from "./clock.ts";
import type { ContactRow } from "./contacts.ts";
import { type SessionRow, sessionKinds } from "./sessions.ts";
import { type ColumnType, sameBesides, tableOf } from "./table.ts";

/** The part of an account that requests change. Plans and windows change the rest. */
const accountState = {
  id: "text",
  seq: "integer",
  base: "integer",
  baseHeld: "integer",
  overage: "integer",
  overageHeld: "integer",
  kept: "windows",
  additional: "integer",
  additionalHeld: "integer",
  holds: "integer",
  used: "integer",
  requestsTatMs: "real",
  tokensTatMs: "real",
  tokensLimit: "integer?",
} as const;

export const accountStateTable = tableOf<Pick<AccountRow, keyof typeof accountState>>(
  "account",
  accountState,
);

export const accountTable = tableOf<AccountRow>("account", {
  ...accountState,
  plan: "text",
  nextPlan: "text?",
  state: accountStates,
  endsMs: "integer?",
  createdMs: "integer",
  baseCap: "integer",
  basePlan: "text",
  baseVersion: "integer",
  baseEvery: "text",
  baseAnchorMs: "integer",
  baseStartsMs: "integer",
  baseEndsMs: "integer",
  baseGrant: "integer",
  baseSince: "integer",
  overageCap: "integer",
  overagePlan: "text",
  overageVersion: "integer",
  overageEvery: "text",
  overageAnchorMs: "integer",
  overageStartsMs: "integer",
  overageEndsMs: "integer",
  overageGrant: "integer",
  overageSince: "integer",
});

/** Whether and when an account ends. */
export const accountEndTable = tableOf<Pick<AccountRow, "state" | "endsMs">>("account", {
  state: accountStates,
  endsMs: "integer?",
});

/** Reports whether two rows of an account differ in their state only. */
export const isSameButState = sameBesides(accountTable, accountStateTable);

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
  base: "integer",
  overage: "integer",
  additional: "integer",
  takenSeq: "integer",
  earlier: "takings",
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
  op: "text",
  note: "text?",
  baseDelta: "integer",
  overageDelta: "integer",
  additionalDelta: "integer",
  baseAfter: "integer",
  overageAfter: "integer",
  additionalAfter: "integer",
});

export const chargeTable = tableOf<ChargeRow>("charge", {
  account: "text",
  id: "text",
  seq: "integer",
  atMs: "integer",
  key: "text",
  model: "text",
  ending: endings,
  estimated: "boolean",
  late: "boolean",
  ...metered,
  cost: "integer",
  base: "integer",
  overage: "integer",
  additional: "integer",
  shortfall: "integer",
  baseGrant: "integer",
  overageGrant: "integer",
  basePast: "integer",
  overagePast: "integer",
});

export const grantTable = tableOf<GrantRow>("credit_grant", {
  account: "text",
  seq: "integer",
  bucket: [...windowBuckets, "additional"],
  cause: grantCauses,
  atMs: "integer",
  amount: "integer",
  ref: "text?",
  payment: "text?",
  plan: "text?",
  version: "integer?",
  anchorMs: "integer?",
  startsMs: "integer?",
  endsMs: "integer?",
  since: "integer?",
  spent: "integer?",
  held: "integer?",
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
  budgetStartsMs: "integer?",
  budgetEndsMs: "integer?",
  budgetSpent: "integer?",
  budgetSince: "integer",
} as const;

export const keyStateTable = tableOf<Pick<KeyRow, keyof typeof keyState>>("api_key", keyState);

export const keyTable = tableOf<KeyRow>("api_key", {
  ...keyState,
  budget: "integer?",
  budgetEvery: "text?",
  budgetAnchorMs: "integer?",
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
  overageCredits: Credits;
  overageEvery: string;
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
  overageCredits: "integer",
  overageEvery: "text",
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
  trustedMs: "integer",
  clockMs: "integer",
  isTrusted: "boolean",
  bootId: "text?",
  bootMs: "integer?",
  accepts: "integer",
});

export const clockAcceptTable = tableOf<AcceptedClock>("clock_accept", {
  number: "integer",
  by: "text",
  trustedMs: "integer",
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
