/**
 * The JSON objects of the operator API, which the command line prints too. They contain every field of the ledger's
 * rows except the hash of a key.
 */
import type { Static } from "typebox";
import type { CreditsChange } from "../../accounts/operator-actions.ts";
import { longestAnswer, type Model } from "../../chat/catalog.ts";
import type { EngineLoad } from "../../chat/engine.ts";
import type {
  AccountRow,
  HoldRow,
  JournalRow,
  KeyRow,
  RowPrice,
  TokenCounts,
  UsageRow,
} from "../../ledger/rows.ts";
import type { AuditReport } from "../../store/audit.ts";
import type { NodeView } from "../../store/nodes.ts";
import type { Credits, EpochMs } from "../../units.ts";
import { balanceObject } from "../openai-format/response.ts";
import type * as schema from "./schemas.ts";

export function accountObject(row: AccountRow): Static<typeof schema.account> {
  return { id: row.id, plan: row.plan, created_at: isoTime(row.createdMs) };
}

export function keyObject(row: KeyRow): Static<typeof schema.key> {
  return {
    id: row.id,
    account: row.account,
    name: row.name,
    last_four: row.lastFour,
    models: [...row.models],
    limits: {
      requests_per_minute: row.requestsPerMinute,
      tokens_per_minute: row.tokensPerMinute,
      concurrent: row.concurrent,
    },
    created_at: isoTime(row.createdMs),
    expires_at: isoTimeOrNull(row.expiresMs),
    revoked_at: isoTimeOrNull(row.revokedMs),
    last_used_at: isoTimeOrNull(row.lastUsedMs),
  };
}

export function topupObject(
  account: string,
  payment_id: string,
  credits: Credits,
  { replayed, balance }: CreditsChange,
): Static<typeof schema.topup> {
  return { account, payment_id, credits, again: replayed, balance: balanceObject(balance) };
}

export function adjustmentObject(
  account: string,
  operation_id: string,
  credits: Credits,
  { replayed, balance }: CreditsChange,
): Static<typeof schema.adjustment> {
  return { account, operation_id, credits, again: replayed, balance: balanceObject(balance) };
}

export function journalObject(row: JournalRow): Static<typeof schema.journalEntry> {
  return {
    seq: row.seq,
    at: isoTime(row.atMs),
    kind: row.kind,
    operation: row.op,
    note: row.note,
    base_delta_micro: row.baseDelta,
    overage_delta_micro: row.overageDelta,
    additional_delta_micro: row.additionalDelta,
    base_after_micro: row.baseAfter,
    overage_after_micro: row.overageAfter,
    additional_after_micro: row.additionalAfter,
  };
}

export function usageObject(row: UsageRow): Static<typeof schema.usageRecord> {
  return {
    request_id: row.id,
    account: row.account,
    key: row.key,
    model: row.model,
    finished_at: isoTime(row.atMs),
    ending: row.ending,
    estimated: row.estimated,
    ...tokenFields(row),
    ...priceFields(row),
    cost_micro: row.cost,
    base_micro: row.base,
    overage_micro: row.overage,
    additional_micro: row.additional,
    shortfall_micro: row.shortfall,
    journal_seq: row.seq,
  };
}

export function holdObject(row: HoldRow): Static<typeof schema.holdRecord> {
  return {
    request_id: row.id,
    account: row.account,
    key: row.key,
    model: row.model,
    created_at: isoTime(row.createdMs),
    expires_at: isoTime(row.expiresMs),
    held_micro: row.base + row.basePast + row.overage + row.overagePast + row.additional,
    ...tokenFields(row),
    ...priceFields(row),
  };
}

export function auditObject({
  checkedMs,
  journalRows,
  broken,
}: AuditReport): Static<typeof schema.auditReport> {
  return {
    sound: broken.length === 0,
    checked_at: isoTime(checkedMs),
    journal_entries: journalRows,
    broken,
  };
}

export function modelObject({
  id,
  engine,
  outputTokensMax,
  price,
}: Model): Static<typeof schema.modelRecord> {
  return {
    id,
    state: engine.state,
    context_window: engine.contextWindow,
    max_output_tokens: longestAnswer(engine.contextWindow, outputTokensMax),
    pricing: {
      prompt: price.prompt,
      completion: price.completion,
      cached_prompt: price.cachedPrompt ?? price.prompt,
    },
    load: loadObject(engine.load?.() ?? null),
  };
}

function loadObject(load: EngineLoad | null): Static<typeof schema.modelRecord>["load"] {
  return load === null ? null : { running: load.running, waiting: load.waiting, paused: load.paused ?? 0 };
}

export function nodeObject(node: NodeView): Static<typeof schema.nodeRecord> {
  return {
    id: node.id,
    version: node.version,
    started_at: isoTime(node.startedMs),
    seen_at: isoTime(node.seenMs),
    self: node.isSelf,
    differs: [...node.differs],
  };
}

function tokenFields(row: TokenCounts) {
  return {
    prompt_tokens: row.promptTokens,
    cached_tokens: row.cachedTokens,
    completion_tokens: row.completionTokens,
    reasoning_tokens: row.reasoningTokens,
  };
}

function priceFields(row: RowPrice) {
  return {
    price_prompt: row.pricePrompt,
    price_cached_prompt: row.priceCachedPrompt,
    price_completion: row.priceCompletion,
  };
}

function isoTime(ms: EpochMs): string {
  return new Date(ms).toISOString();
}

function isoTimeOrNull(ms: EpochMs | null): string | null {
  return ms === null ? null : isoTime(ms);
}
