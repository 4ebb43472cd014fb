/**
 * The JSON objects of the operator API, which the command line prints too. The objects contain
 * every field of the ledger's rows except the hash of a key.
 *
 * Amounts in fields that end in `_micro` are whole micro-credits (1 credit = 1,000,000), prices
 * are credits per million tokens, times are ISO 8601 in UTC.
 */
import Type from "typebox";
import type { AcceptedClock, ClockState } from "../ledger/clock.ts";
import type {
  AccountRow,
  HoldRow,
  JournalRow,
  KeyRow,
  RowPrice,
  TokenCounts,
  UsageRow,
} from "../ledger/rows.ts";
import type { AuditReport } from "../store/audit.ts";
import type { NodeView } from "../store/nodes.ts";
import type { Credits } from "../units.ts";
import { balanceObject } from "./balance-object.ts";
import {
  closed,
  component,
  count,
  fieldsFor,
  isoTime,
  isoTimeOrNull,
  micro,
  microDelta,
  objectFor,
  orNull,
  text,
  time,
} from "./json-objects.ts";
import type { CreditsChange } from "./operator-actions.ts";

export const accountObject = objectFor<AccountRow>("Account")({
  id: [text, (row) => row.id],
  plan: [text, (row) => row.plan],
  created_at: [time, (row) => isoTime(row.createdMs)],
});

const limits = closed({
  requests_per_minute: orNull(count),
  tokens_per_minute: orNull(count),
  concurrent: orNull(count),
});

const keyFields = fieldsFor<KeyRow>()({
  id: [text, (row) => row.id],
  account: [text, (row) => row.account],
  name: [orNull(text), (row) => row.name],
  last_four: [text, (row) => row.lastFour],
  models: [Type.Array(text), (row) => [...row.models]],
  limits: [
    limits,
    (row) => ({
      requests_per_minute: row.requestsPerMinute,
      tokens_per_minute: row.tokensPerMinute,
      concurrent: row.concurrent,
    }),
  ],
  created_at: [time, (row) => isoTime(row.createdMs)],
  expires_at: [orNull(time), (row) => isoTimeOrNull(row.expiresMs)],
  revoked_at: [orNull(time), (row) => isoTimeOrNull(row.revokedMs)],
  last_used_at: [orNull(time), (row) => isoTimeOrNull(row.lastUsedMs)],
});

export const keyObject = objectFor<KeyRow>("Key")(keyFields);
export const newKeyObject = objectFor<KeyRow & { key: string | null }>("NewKey")({
  key: [orNull(Type.String({ description: "the key itself, only in this response" })), (row) => row.key],
  ...keyFields,
});

/** As `GET /v1/balance` returns it. */
const bucket = closed({ credits: count, percent: Type.Number() });
const cap = closed({ credits: count });
const window = closed({ startedAt: time, refreshesAt: time });
export const balance = component("Balance", {
  object: Type.Literal("balance"),
  available: Type.Boolean(),
  plan: text,
  balances: closed({ base: bucket, overage: bucket, additional: cap, total: bucket }),
  caps: closed({ base: cap, overage: cap, total: cap }),
  baseWindow: window,
  overageWindow: window,
});

/** A change of credits with the id that makes it safe to repeat. */
interface CreditsRow {
  account: string;
  id: string;
  credits: Credits;
  change: CreditsChange;
}

const changeFields = fieldsFor<CreditsRow>()({
  credits: [Type.Integer(), (row) => row.credits],
  again: [
    Type.Boolean({ description: "whether the id had taken effect before" }),
    (row) => row.change.replayed,
  ],
  balance: [balance, (row) => balanceObject(row.change.balance)],
});

export const topupObject = objectFor<CreditsRow>("Topup")({
  account: [text, (row) => row.account],
  payment_id: [text, (row) => row.id],
  ...changeFields,
  credits: [count, (row) => row.credits],
});

export const adjustmentObject = objectFor<CreditsRow>("Adjustment")({
  account: [text, (row) => row.account],
  operation_id: [text, (row) => row.id],
  ...changeFields,
});

export const journalObject = objectFor<JournalRow>("JournalEntry")({
  seq: [count, (row) => row.seq],
  at: [time, (row) => isoTime(row.atMs)],
  kind: [text, (row) => row.kind],
  operation: [text, (row) => row.op],
  note: [orNull(text), (row) => row.note],
  base_delta_micro: [microDelta, (row) => row.baseDelta],
  overage_delta_micro: [microDelta, (row) => row.overageDelta],
  additional_delta_micro: [microDelta, (row) => row.additionalDelta],
  base_after_micro: [micro, (row) => row.baseAfter],
  overage_after_micro: [micro, (row) => row.overageAfter],
  additional_after_micro: [micro, (row) => row.additionalAfter],
});

const tokenAndPriceFields = fieldsFor<TokenCounts & RowPrice>()({
  prompt_tokens: [count, (row) => row.promptTokens],
  cached_tokens: [count, (row) => row.cachedTokens],
  completion_tokens: [count, (row) => row.completionTokens],
  reasoning_tokens: [count, (row) => row.reasoningTokens],
  price_prompt: [count, (row) => row.pricePrompt],
  price_cached_prompt: [count, (row) => row.priceCachedPrompt],
  price_completion: [count, (row) => row.priceCompletion],
});

export const usageObject = objectFor<UsageRow>("UsageRecord")({
  request_id: [text, (row) => row.id],
  account: [text, (row) => row.account],
  key: [text, (row) => row.key],
  model: [text, (row) => row.model],
  finished_at: [time, (row) => isoTime(row.atMs)],
  ending: [text, (row) => row.ending],
  estimated: [Type.Boolean(), (row) => row.estimated],
  ...tokenAndPriceFields,
  cost_micro: [micro, (row) => row.cost],
  base_micro: [micro, (row) => row.base],
  overage_micro: [micro, (row) => row.overage],
  additional_micro: [micro, (row) => row.additional],
  shortfall_micro: [micro, (row) => row.shortfall],
  journal_seq: [count, (row) => row.seq],
});

export const holdObject = objectFor<HoldRow>("Hold")({
  request_id: [text, (row) => row.id],
  account: [text, (row) => row.account],
  key: [text, (row) => row.key],
  model: [text, (row) => row.model],
  created_at: [time, (row) => isoTime(row.createdMs)],
  expires_at: [time, (row) => isoTime(row.expiresMs)],
  held_micro: [micro, (row) => row.base + row.basePast + row.overage + row.overagePast + row.additional],
  ...tokenAndPriceFields,
});

const broken = closed({
  invariant: Type.String({ description: "the invariant that does not hold" }),
  rows: Type.Array(Type.Record(Type.String(), Type.Union([Type.String(), Type.Number(), Type.Null()]))),
});

export const auditObject = objectFor<AuditReport>("AuditReport")({
  sound: [Type.Boolean(), (report) => report.broken.length === 0],
  checked_at: [time, (report) => isoTime(report.checkedMs)],
  journal_entries: [count, (report) => report.journalRows],
  broken: [
    Type.Array(broken, { description: "the invariants that do not hold, each with its first rows at fault" }),
    (report) => report.broken,
  ],
});

export const clockObject = objectFor<ClockState>("Clock")({
  trusted: [Type.Boolean(), (state) => state.isTrusted],
  clock_at: [time, (state) => isoTime(state.clockMs)],
  trusted_at: [time, (state) => isoTime(state.trustedMs)],
});

export const acceptedClockObject = objectFor<AcceptedClock>("AcceptedClock")({
  number: [count, (accepted) => accepted.number],
  by: [text, (accepted) => accepted.by],
  trusted_at: [time, (accepted) => isoTime(accepted.trustedMs)],
  clock_at: [time, (accepted) => isoTime(accepted.clockMs)],
});

export const nodeObject = objectFor<NodeView>("Node")({
  id: [text, (node) => node.id],
  version: [text, (node) => node.version],
  started_at: [time, (node) => isoTime(node.startedMs)],
  seen_at: [time, (node) => isoTime(node.seenMs)],
  self: [Type.Boolean({ description: "whether this node responds" }), (node) => node.isSelf],
  differs: [
    Type.Array(text, {
      description: "plans, models and prices whose configuration differs from this node's",
    }),
    (node) => [...node.differs],
  ],
});
