/**
 * The JSON objects of the operator API, which the command line prints too. They have the
 * fields of the ledger's rows that operators need, and never the hash of a key.
 *
 * Amounts in fields that end in `_micro` are whole micro-credits (1 credit = 1,000,000), prices
 * are credits per million tokens, times are ISO 8601 in UTC.
 */
import Type, { type Static } from "typebox";
import { type BalanceView, hasLowBalance, lowBalancePercent } from "../ledger/balance.ts";
import { amountOf } from "../ledger/grants.ts";
import { capStatesOf } from "../ledger/key-facts.ts";
import type { PlanPreview } from "../ledger/preview.ts";
import {
  accountStates,
  buckets,
  type HoldRow,
  type KeyRow,
  portalRights,
  type RowPrice,
  type TokenCounts,
} from "../ledger/rows.ts";
import type { AuditRecord, AuditReport } from "../store/audit-report.ts";
import type { Contact, ListedAccount } from "../store/contacts.ts";
import type { NodeView } from "../store/nodes.ts";
import {
  type Finding,
  findingKinds,
  type ListedEntry,
  type ListedPayment,
  type Receipt,
} from "../store/store.ts";
import type { Credits, EpochMs, MicroCredits } from "../units.ts";
import { balanceObject } from "./balance-object.ts";
import {
  closed,
  component,
  count,
  fieldsFor,
  isoTime,
  isoTimeOrNull,
  limitsSchema,
  micro,
  objectFor,
  orNull,
  text,
  time,
  valueFields,
} from "./json-objects.ts";
import type { KeyOfSecret } from "./key-actions.ts";
import { type AccountOfList, invitationStates } from "./operator-actions.ts";
import { limitsObject } from "./plan-limits.ts";
import { spendingCaps, spendingCapsObject } from "./spending-caps-object.ts";
import * as rules from "./value-rules.ts";

const mail = Type.Enum([...rules.onOrOff]);

/** Kinds of mail about an account. */
const mailFields = fieldsFor<{ contact: Contact }>()({
  balance_low_mail: [mail, (row) => row.contact.balanceLowMail],
  balance_cap_mail: [mail, (row) => row.contact.balanceCapMail],
  balance_exhausted_mail: [mail, (row) => row.contact.balanceExhaustedMail],
  key_expiring_mail: [mail, (row) => row.contact.keyExpiringMail],
});
export const ownMailObject = objectFor<{ contact: Contact }>("OwnMail")(mailFields);

const accountFields = fieldsFor<ListedAccount>()({
  id: [text, (row) => row.id],
  plan: [text, (row) => row.plan],
  next_plan: [
    orNull(Type.String({ description: "the plan from the next refresh of the base credits on" })),
    (row) => row.nextPlan,
  ],
  state: [Type.Enum([...accountStates]), (row) => row.state],
  ends_at: [orNull(time), (row) => isoTimeOrNull(row.endsMs)],
  created_at: [time, (row) => isoTime(row.createdMs)],
  owner: [orNull(text), (row) => row.contact.owner],
  email: [orNull(text), (row) => row.contact.email],
  note: [orNull(text), (row) => row.contact.note],
  external_id: [orNull(text), (row) => row.contact.externalId],
  ...mailFields,
});
export const accountObject = objectFor<ListedAccount>("Account")(accountFields);
export type AccountJson = Static<typeof accountObject.schema>;

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

export const listedAccountObject = objectFor<AccountOfList>("ListedAccount")({
  ...accountFields,
  balance: [orNull(balance), (row) => row.balance && balanceObject(row.balance)],
  problem: [
    orNull(Type.String({ description: "why the balance cannot be read" })),
    (row) => row.balanceProblem,
  ],
  invitation: [
    orNull(
      Type.Enum([...invitationStates], {
        description:
          "`invited`: the link can be used; `lapsed`: it has ended, or the account is closed, and nobody came; `joined`: the person has come; `used`: and a request of the account has finished",
      }),
    ),
    (row) => row.invitation,
  ],
  low_balance: [
    Type.Boolean({
      description: `whether less than one credit is left, or less than ${lowBalancePercent} % of the credits of both windows, additional credits included`,
    }),
    (row) => row.balance !== null && hasLowBalance(row.balance),
  ],
});

const actsFor = closed({
  name: text,
  header: text,
  name_header: orNull(text),
  email_header: orNull(text),
  plan: orNull(text),
  new_accounts_per_day: orNull(count),
});

function actsForObject({ actsFor: frontEnd }: KeyRow): Static<typeof actsFor> | null {
  if (frontEnd === null) return null;
  const { name, header, nameHeader, emailHeader, plan, newAccountsPerDay } = frontEnd;
  return {
    name,
    header,
    name_header: nameHeader,
    email_header: emailHeader,
    plan,
    new_accounts_per_day: newAccountsPerDay,
  };
}

const keyFields = fieldsFor<KeyRow>()({
  id: [text, (row) => row.id],
  account: [text, (row) => row.account],
  name: [orNull(text), (row) => row.name],
  last_four: [text, (row) => row.lastFour],
  models: [Type.Array(text), (row) => [...row.models]],
  limits: [limitsSchema, limitsObject],
  spending_caps: [spendingCaps, (row) => spendingCapsObject(capStatesOf(row))],
  portal: [
    Type.Enum([...portalRights], {
      description: "what the key may do in the portal: `own` sees itself, `account` manages all keys",
    }),
    (row) => row.portal,
  ],
  acts_for: [orNull(actsFor), actsForObject],
  created_at: [time, (row) => isoTime(row.createdMs)],
  expires_at: [orNull(time), (row) => isoTimeOrNull(row.expiresMs)],
  old_secret_until: [
    orNull(
      Type.String({
        format: "date-time",
        description: "the time until which the secret before the last rotation is valid",
      }),
    ),
    (row) => isoTimeOrNull(row.oldUntilMs),
  ],
  revoked_at: [orNull(time), (row) => isoTimeOrNull(row.revokedMs)],
  last_used_at: [orNull(time), (row) => isoTimeOrNull(row.lastUsedMs)],
});

export const keyObject = objectFor<KeyRow>("Key")(keyFields);
export type KeyJson = Static<typeof keyObject.schema>;
export const newKeyObject = objectFor<KeyRow & { key: string | null }>("NewKey")({
  key: [orNull(Type.String({ description: "the key itself, only in this response" })), (row) => row.key],
  ...keyFields,
});

export type NewKeyJson = Static<typeof newKeyObject.schema>;

export const keyOfSecretObject = objectFor<KeyOfSecret>("KeyOfSecret")({
  secret: [
    Type.Enum(["present", "old"], { description: "`old`: the secret before the last rotation" }),
    (found) => found.secret,
  ],
  usable: [
    Type.Boolean({ description: "whether a request with this secret is authenticated now" }),
    (found) => found.isUsable,
  ],
  key: [keyObject.schema, (found) => keyObject.of(found.row)],
});

/** A change of credits with the id that makes it safe to repeat. */
interface CreditsRow {
  account: string;
  id: string;
  credits: Credits;
  /** The id was known: the credits were counted before, and nothing has changed now. */
  replayed: boolean;
  /** After the change. */
  balance: BalanceView;
}

const changeFields = fieldsFor<CreditsRow>()({
  credits: [Type.Integer(), (row) => row.credits],
  again: [Type.Boolean({ description: "whether the id had taken effect before" }), (row) => row.replayed],
  balance: [balance, (row) => balanceObject(row.balance)],
  spending_caps: [spendingCaps, (row) => spendingCapsObject(row.balance.caps)],
});

export const topupObject = objectFor<CreditsRow>("Topup")({
  account: [text, (row) => row.account],
  payment_id: [text, (row) => row.id],
  ...changeFields,
  credits: [count, (row) => row.credits],
});
export type TopupJson = Static<typeof topupObject.schema>;

export const adjustmentObject = objectFor<CreditsRow>("Adjustment")({
  account: [text, (row) => row.account],
  operation_id: [text, (row) => row.id],
  ...changeFields,
});
export type AdjustmentJson = Static<typeof adjustmentObject.schema>;

interface RefundRow extends CreditsRow {
  payment: string;
  amountMicro: MicroCredits;
  /** The part that running requests hold. It can be refunded when they have ended. */
  restMicro: MicroCredits;
}

export const refundObject = objectFor<RefundRow>("Refund")({
  account: [text, (row) => row.account],
  refund_id: [text, (row) => row.id],
  payment_id: [text, (row) => row.payment],
  credits: [count, (row) => row.credits],
  refunded_micro: [micro, (row) => row.amountMicro],
  rest_micro: [
    Type.Integer({
      minimum: 0,
      description: "micro-credits that running requests hold. They can be refunded when these have ended",
    }),
    (row) => row.restMicro,
  ],
  again: changeFields.again,
  balance: changeFields.balance,
});
export type RefundJson = Static<typeof refundObject.schema>;

const previewed = closed({
  plan: text,
  next_plan: orNull(text),
  state: Type.Enum([...accountStates]),
  balance,
  spending_caps: spendingCaps,
});

function previewedOf(view: BalanceView) {
  return {
    plan: view.plan,
    next_plan: view.nextPlan,
    state: view.state,
    balance: balanceObject(view),
    spending_caps: spendingCapsObject(view.caps),
  };
}

/** What a change of an account's plan would do. */
type PlanPreviewOf = Extract<PlanPreview, { kind: "preview" }> & { account: string };

export const previewObject = objectFor<PlanPreviewOf>("PlanPreview")({
  account: [text, (preview) => preview.account],
  effective_at: [time, (preview) => isoTime(preview.effectiveMs)],
  before: [previewed, (preview) => previewedOf(preview.before)],
  after: [previewed, (preview) => previewedOf(preview.after)],
  early_micro: [
    Type.Integer({
      description:
        "micro-credits that come with the change, or go if negative, before the present windows would have ended",
    }),
    (preview) => preview.earlyMicro,
  ],
  new_caps: [
    Type.Array(text, { description: "names of the caps of the plan that begin then, with nothing spent" }),
    (preview) => preview.newCaps,
  ],
});
export type PlanPreviewJson = Static<typeof previewObject.schema>;

export const journalObject = objectFor<ListedEntry>("JournalEntry")({
  seq: [count, (row) => row.seq],
  at: [time, (row) => isoTime(row.atMs)],
  kind: [text, (row) => row.kind],
  by: [
    Type.String({
      description:
        "who did it: `owner` (the operator token), `operator_key:ID`, `key:ID` (its holder, in the portal), `command_line:USER`, or `service`",
    }),
    (row) => row.by,
  ],
  operation: [orNull(text), (row) => row.op],
  bucket: [orNull(Type.Enum([...buckets])), (row) => row.bucket],
  amount_micro: [
    orNull(
      Type.Integer({
        description:
          "what a grant begins with, or by how much its amount changes; of a charge, what was paid, as a negative number",
      }),
    ),
    (row) => row.amountMicro,
  ],
  grant: [
    orNull(Type.Integer({ minimum: 1, description: "the number of the entry that began the changed grant" })),
    (row) => row.grantSeq,
  ],
  subject: [
    orNull(Type.String({ description: "the key, the payment, or the request of a memo or a charge" })),
    (row) => row.subject,
  ],
  ...valueFields,
});

export const paymentObject = objectFor<ListedPayment>("Payment")({
  payment_id: [text, (row) => row.id],
  at: [time, (row) => isoTime(row.atMs)],
  amount_micro: [micro, (row) => row.amountMicro],
  refunded_micro: [micro, (row) => row.refundedMicro],
  spent_micro: [micro, (row) => row.spentMicro],
  journal_seq: [count, (row) => row.seq],
});

const requestFields = fieldsFor<Pick<HoldRow, "id" | "account" | "key" | "model">>()({
  request_id: [text, (row) => row.id],
  account: [text, (row) => row.account],
  key: [text, (row) => row.key],
  model: [text, (row) => row.model],
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

export const usageObject = objectFor<Receipt>("UsageRecord")({
  ...requestFields,
  finished_at: [time, (row) => isoTime(row.atMs)],
  ending: [text, (row) => row.ending],
  stopped_by: [orNull(text), (row) => row.by],
  estimated: [Type.Boolean(), (row) => row.estimated],
  note: [
    orNull(
      Type.String({
        description:
          "something odd about the counts that the server reported, or the cap that ended the answer",
      }),
    ),
    (row) => row.note,
  ],
  late: [
    Type.Boolean({ description: "whether this is the difference to a charge that an expiry made before" }),
    (row) => row.late,
  ],
  ...tokenAndPriceFields,
  // A late charge can correct these downwards.
  prompt_tokens: [Type.Integer(), (row) => row.promptTokens],
  cached_tokens: [Type.Integer(), (row) => row.cachedTokens],
  reasoning_tokens: [Type.Integer(), (row) => row.reasoningTokens],
  cost_micro: [micro, (row) => row.costMicro],
  base_micro: [micro, (row) => row.baseMicro],
  overage_micro: [micro, (row) => row.overageMicro],
  additional_micro: [micro, (row) => row.additionalMicro],
  shortfall_micro: [micro, (row) => row.shortfallMicro],
  memo_micro: [
    Type.Integer({ minimum: 0, description: "what memos gave back for the request later, in micro-credits" }),
    (row) => row.memoMicro,
  ],
  journal_seq: [count, (row) => row.seq],
});

export type ReceiptJson = Static<typeof usageObject.schema>;

export const findingObject = objectFor<Finding>("Finding")({
  kind: [Type.Enum([...findingKinds]), (found) => found.kind],
  id: [text, (found) => found.id],
  account: [orNull(text), (found) => found.account],
  name: [
    orNull(Type.String({ description: "of the person or the key, otherwise the owner of the account" })),
    (found) => found.name,
  ],
  email: [orNull(text), (found) => found.email],
  detail: [orNull(text), (found) => found.detail],
  amount_micro: [
    orNull(Type.Integer({ minimum: 0, description: "of a payment, and the cost of a request" })),
    (found) => found.amountMicro,
  ],
  at: [time, (found) => isoTime(found.atMs)],
});

export type FindingJson = Static<typeof findingObject.schema>;

export const holdObject = objectFor<HoldRow>("Hold")({
  ...requestFields,
  created_at: [time, (row) => isoTime(row.createdMs)],
  expires_at: [time, (row) => isoTime(row.expiresMs)],
  held_micro: [micro, (row) => amountOf(row.takings)],
  ...tokenAndPriceFields,
});

export type HoldJson = Static<typeof holdObject.schema>;

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

const auditRecordObject = objectFor<AuditRecord>("AuditRecord")({
  sound: [Type.Boolean(), ({ problems }) => problems === 0],
  checked_at: [time, ({ checkedMs }) => isoTime(checkedMs)],
  journal_entries: [count, ({ journalRows }) => journalRows],
  problems: [count, ({ problems }) => problems],
  first_problem: [orNull(text), ({ firstProblem }) => firstProblem],
});

export const lastAuditObject = objectFor<AuditRecord | null>("LastAudit")({
  last: [orNull(auditRecordObject.schema), (record) => record && auditRecordObject.of(record)],
});

export const timeObject = objectFor<{ atMs: EpochMs; timezone: string }>("LedgerTime")({
  ledger_at: [time, ({ atMs }) => isoTime(atMs)],
  timezone: [Type.String({ description: "the zone of days in requests and reports" }), (row) => row.timezone],
});

export const nodeObject = objectFor<NodeView>("Node")({
  id: [text, (node) => node.id],
  version: [text, (node) => node.version],
  started_at: [time, (node) => isoTime(node.startedMs)],
  seen_at: [time, (node) => isoTime(node.seenMs)],
  self: [Type.Boolean({ description: "whether this node responds" }), (node) => node.isSelf],
  differs: [
    Type.Array(text, {
      description: "models and prices that differ from this node's, and `plans` if the plans sections differ",
    }),
    (node) => [...node.differs],
  ],
});
