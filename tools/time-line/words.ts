/** Operations, their outcomes and their facts in words. */
import type { HoldOutcome, RefundOutcome } from "../../src/ledger/outcomes.ts";
import type { ChargeRow, GrantRow, JournalRow, Taking } from "../../src/ledger/rows.ts";
import { exactCredits, grouped, type MicroCredits } from "../../src/units.ts";
import { clockText, dayQuarters, type NamedEvent, timeText } from "./history.ts";
import type { Commit } from "./play.ts";
import { quarterAt } from "./world.ts";

/** Returns an amount with its unit: `1 credit`, `12.5 credits`. */
export function creditsText(micro: MicroCredits): string {
  const text = exactCredits(micro);
  return `${text} ${text === "1" ? "credit" : "credits"}`;
}

function atText(ms: number): string {
  return timeText(quarterAt(ms));
}

export interface Sentence {
  /** The operation. */
  asked: string;
  /** The outcome. */
  answer: string;
  isRefused: boolean;
}

/** Describes a commit: what was asked, and what the ledger decided. */
export function sentenceOf(commit: Commit): Sentence {
  const asked = askedOf(commit);
  const answer = answerOf(commit);
  return typeof answer === "string"
    ? { asked, answer, isRefused: false }
    : { asked, answer: `${answer.reason}. ${answer.why}`, isRefused: true };
}

function askedOf({ operation }: Commit): string {
  switch (operation.kind) {
    case "open":
      return `The account is opened on the plan ${operation.plan}`;
    case "hold":
      return `asks for a hold of ${creditsText(operation.wantMicro)}`;
    case "extend": {
      const tokens = grouped(operation.usage.completionTokens);
      return `writes a checkpoint at ${tokens} tokens and asks for ${creditsText(operation.moreMicro)} more`;
    }
    case "settle":
      return `settles ${grouped(operation.usage.completionTokens)} tokens`;
    case "expire":
      return "has not extended its hold for two hours";
    case "topup":
      return `pays ${creditsText(operation.amountMicro)}`;
    case "refund":
      return `asks for ${creditsText(operation.amountMicro)} of ${operation.payment.replace("-", " ")} back`;
    case "plan": {
      const when = {
        refresh: "at the end of the base window",
        now: "now",
        new_window: "now, with new windows",
      };
      return `changes to the plan ${operation.plan} ${when[operation.at]}`;
    }
    case "promote":
      return `gives ${creditsText(operation.amountMicro)}${
        operation.untilMs === null ? " without an end" : ` until ${atText(operation.untilMs)}`
      }`;
    default:
      return operation.kind;
  }
}

/** A refusal: its name in the ledger, and a sentence. */
interface Refused {
  reason: string;
  why: string;
}

function answerOf({ operation, outcome }: Commit): string | Refused {
  switch (outcome.kind) {
    case "opened":
      return "opened, with both windows full";
    case "held":
      return `holds ${creditsText(outcome.amountMicro)}`;
    case "refused":
      return holdRefusal(outcome);
    case "extended": {
      const asked = operation.kind === "extend" ? operation.moreMicro : 0;
      if (outcome.amountMicro === asked) return `holds ${creditsText(asked)} more`;
      const got = outcome.amountMicro === 0 ? "no credits" : `only ${creditsText(outcome.amountMicro)}`;
      return outcome.reserved
        ? { reason: got, why: "Other requests hold the rest, so the answer waits for them." }
        : { reason: got, why: "The rest is spent, so the answer ends with what it holds." };
    }
    case "settled": {
      const ending = operation.kind === "settle" && operation.ending === "credits" ? "credits" : "stop";
      const why = ending === "credits" ? " Its credits were spent before its end." : "";
      return `costs ${creditsText(outcome.costMicro)}, ending “${ending}”.${why}`;
    }
    case "expired":
      return "expires. The last checkpoint is charged, and the rest returns.";
    case "added":
      return `${creditsText(outcome.additionalMicro)} of additional credits now`;
    case "refunded":
    case "unknown_payment":
      return refundAnswer(outcome);
    case "too_much":
      return "refundableMicro" in outcome
        ? refundAnswer(outcome)
        : { reason: "too_much", why: "The bucket would have more than 9 billion credits." };
    case "changed":
      return operation.kind === "plan" && operation.at === "refresh" ? "scheduled" : "changed";
    case "window_differs":
      return {
        reason: "window_differs",
        why: `Windows of ${outcome.buckets.join(" and ")} are of another length in this plan. It can begin at the refresh (${atText(outcome.refreshMs)}), or with new windows.`,
      };
    default:
      return { reason: outcome.kind, why: "" };
  }
}

function holdRefusal(outcome: Extract<HoldOutcome, { kind: "refused" }>): Refused {
  const { reason } = outcome;
  if (reason === "insufficient_credits") {
    const [next] = outcome.refreshes;
    const left = `${creditsText(outcome.leftMicro)} are left.`;
    const refresh = next === undefined ? "" : ` Credits refresh on ${atText(next.atMs)}.`;
    return { reason, why: `A prompt and one token cost more: ${left}${refresh}` };
  }
  if (reason === "credits_reserved")
    return { reason, why: "Other requests hold the credits, and may give some back." };
  return { reason, why: "" };
}

function refundAnswer(
  outcome: Extract<RefundOutcome, { kind: "refunded" | "unknown_payment" | "too_much" }>,
): string | Refused {
  if (outcome.kind === "unknown_payment")
    return { reason: outcome.kind, why: "The account has no such payment yet." };
  if (outcome.kind === "too_much")
    return {
      reason: outcome.kind,
      why: `Only ${creditsText(outcome.refundableMicro)} of this payment are not spent.`,
    };
  const { amountMicro, restMicro } = outcome;
  const rest = restMicro === 0 ? "" : ` Running requests hold ${creditsText(restMicro)} more.`;
  return `returns ${creditsText(amountMicro)}.${rest}`;
}

/** A fact of the ledger, for the list. */
export interface Fact {
  seq: number;
  text: string;
  /** The id of the event that it is about. Null: the opening, or time. */
  event: string | null;
}

/** Describes the facts of a commit, in the order of their numbers. */
export function factsOf(commit: Commit, grants: readonly GrantRow[]): Fact[] {
  const entries = commit.journal.map((row) => ({
    seq: row.seq,
    text: entryText(row, grants),
    event: row.by === "service" ? null : commit.event,
  }));
  const charges = commit.charges.map((row) => ({ seq: row.seq, text: chargeText(row), event: row.id }));
  return [...entries, ...charges].toSorted((one, other) => one.seq - other.seq);
}

function entryText(row: JournalRow, grants: readonly GrantRow[]): string {
  const { seq, kind, note, grantSeq } = row;
  const micro = row.amountMicro ?? 0;
  const signed = `${micro > 0 ? "+" : ""}${creditsText(micro)}`;
  const grant = grants.find((each) => each.seq === seq);
  switch (kind) {
    case "open":
      return `account on the plan ${note}`;
    case "key":
      return "key of the account";
    case "window": {
      if (grant === undefined) return "window";
      const carried = grant.spentMicro === 0 ? "" : `, ${creditsText(grant.spentMicro)} of it spent before`;
      return `grant of ${row.bucket}: ${creditsText(micro)} for ${lifeText(grant)}${carried}`;
    }
    case "plan": {
      const early = micro === 0 ? "" : `, which changes present windows by ${signed}`;
      return `plan ${note}${early}`;
    }
    case "change":
      return `change of grant ${grantSeq}: ${signed}`;
    case "payment":
      return `grant: payment of ${creditsText(micro)}`;
    case "promotion":
      return grantSeq === null
        ? `grant: promotion of ${creditsText(micro)}${grant?.untilMs == null ? "" : ` for ${lifeText(grant)}`}`
        : `promotion: grant ${grantSeq}, ${signed}`;
    case "refund":
      return `refund of grant ${grantSeq}: ${signed}`;
    default:
      return kind;
  }
}

/** Returns the life of a grant: `day 1, 5:00 to 10:00`. */
export function lifeText({ fromMs, untilMs }: { fromMs: number; untilMs: number | null }): string {
  if (untilMs === null) return `from ${atText(fromMs)}`;
  const [from, until] = [quarterAt(fromMs), quarterAt(untilMs)];
  const isSameDay = Math.floor(from / dayQuarters) === Math.floor(until / dayQuarters);
  return `${timeText(from)} to ${isSameDay ? clockText(until % dayQuarters) : timeText(until)}`;
}

function chargeText({ paid, costMicro, shortfallMicro, completionTokens, promptTokens }: ChargeRow): string {
  const tokens = `${grouped(promptTokens)} + ${grouped(completionTokens)} tokens`;
  const short = shortfallMicro === 0 ? "" : `, shortfall ${creditsText(shortfallMicro)}`;
  return `charge of ${creditsText(costMicro)} for ${tokens}: ${paidText(paid)}${short}`;
}

function paidText(paid: readonly Taking[]): string {
  if (paid.length === 0) return "paid by no grant";
  const parts = paid.map(
    ({ grant, bucket, amountMicro }) => `${exactCredits(amountMicro)} of grant ${grant} (${bucket})`,
  );
  return parts.join(", ");
}

/** Describes an event in a few words. */
export function eventText(event: NamedEvent): string {
  switch (event.kind) {
    case "request":
      return `${timeText(event.at)}, for ${clockText(event.length)} h`;
    case "crash":
      return timeText(event.at);
    case "plan":
      return `${timeText(event.at)}: ${event.plan}, ${event.when.replace("_", " ")}`;
    case "payment":
      return `${timeText(event.at)}: ${event.credits} credits`;
    case "refund":
      return `${timeText(event.at)}: ${event.credits} credits of payment ${event.payment}`;
    case "promotion":
      return `${timeText(event.at)}: ${event.credits} credits ${
        event.length === null ? "without an end" : `for ${clockText(event.length)} h`
      }`;
  }
}
