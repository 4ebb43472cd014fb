/** The actions of operators on the credits of an account. Pages bundle this file. */
import type { AdjustmentJson, RefundJson, TopupJson } from "../accounts/operator-objects.ts";
import * as rules from "../accounts/value-rules.ts";
import { exactCredits, grouped } from "../units.ts";
import { action } from "./action.ts";
import { capText } from "./cap-text.ts";
import { idText, number, optional, optionally, text } from "./field.ts";
import { accountId, operationId } from "./fields.ts";

const credits = number(rules.topup, "whole credits", { label: "Credits", about: "whole credits" });

export const paymentId = idText(rules.id, {
  label: "Payment id",
  hint: "The number of the invoice or payment, if there is one. Each payment id adds credits once in the installation.",
  option: "--payment <id>",
  about: "your id of the payment; a repetition changes nothing",
});

/** The journal and the log keep it. */
const reason = text(rules.note, {
  label: "Reason",
  option: "--reason <text>",
  about: "the reason, for the journal",
});

export const addCredits = action({
  id: "addCredits",
  title: "Add credits that were paid for",
  help: "Each payment id takes effect once. A repetition changes nothing and has `again: true`; with another amount it is refused.",
  http: "POST /admin/accounts/{account}/topups",
  cli: "credits add <account> <credits>",
  role: "operator",
  input: { account: accountId, credits, payment_id: paymentId },
  refuses: ["account_closed", "payment_differs", "payment_used", "too_many_credits"],
  form: { title: "Top up {name}", submit: "Add the credits" },
  done: ({ account, payment_id, credits, again, spending_caps }: TopupJson) =>
    again
      ? `Payment ${payment_id} was counted before. Nothing has changed.`
      : `${grouped(credits)} credits added to ${account}.${cappedText(spending_caps)}`,
});

/** Purchased credits do not raise a cap, which nobody expects. */
function cappedText(caps: TopupJson["spending_caps"]): string {
  return caps.length === 0 ? "" : ` The caps of its plan count them too: ${capText.write(caps)}.`;
}

/** Whether the credits of a form are given. */
function isGift({ credits = "" }: Readonly<Record<string, string>>): boolean {
  return !credits.trim().startsWith("-");
}

export const adjustCredits = action({
  id: "adjustCredits",
  title: "Give promotional credits, or take them away",
  help: "A positive number gives credits: until `expires_at`, if it is set, or to make up for the request `request_id`, at most what was paid for it. A negative number takes promotional credits that no request holds: those of the entry `grant` of the journal, or the newest first. It never takes what was paid for. Each operation id takes effect once. A repetition changes nothing and has `again: true`; with other values it is refused.",
  http: "POST /admin/accounts/{account}/adjustments",
  cli: "credits adjust <account> <credits>",
  examples: [
    'credits adjust ada 12 --request 019a0c3e-5d1f-7a52-9c3e-8d1f5a529c3e --reason "cut off"',
    'credits adjust ada -2000 --reason "counted twice" --id fix-17',
  ],
  role: "support",
  once: "operation_id",
  input: {
    account: accountId,
    operation_id: operationId(),
    credits: number(rules.adjustment, "whole credits", {
      note: ", negative to take away, not 0",
      label: "Credits",
      hint: "A negative number takes promotional credits away: -200.",
      about: "whole credits; a negative number takes away",
    }),
    reason,
    expires_at: optionally.moment({
      isTyped: true,
      label: "Last day",
      hint: "The credits end with this day: 2027-01-31. Without one they never end.",
      isShown: isGift,
      option: "--expires <time>",
      about: "of credits that are given: when they end, as a time or the last day",
    }),
    request_id: optionally.idText(rules.id, {
      rule: `the id of a request, ${rules.id.rule}`,
      label: "Request",
      hint: "The id of a request that the credits make up for, at most what was paid for it.",
      isShown: isGift,
      option: "--request <id>",
      about: "the request that the credits make up for, at most what was paid for it",
    }),
    grant: optionally.number(rules.limit, "a whole number", {
      label: "Grant",
      hint: "Take from this grant, by its number in the journal. Without one, the newest are taken from first.",
      isShown: (texts) => !isGift(texts),
      option: "--grant <number>",
      about: "take from this grant, by its number in the journal",
    }),
  },
  refuses: [
    "account_closed",
    "operation_differs",
    "too_few_credits",
    "too_many_credits",
    "grant_not_found",
    "allowance_exceeded",
    "request_not_found",
    "request_running",
    "memo_too_large",
  ],
  form: {
    title: "Adjust the credits of {name}",
    intro:
      "Gives promotional credits, or takes them away. Credits that were paid for are taken back by a refund. The journal keeps the reason.",
    submit: "Adjust the credits",
  },
  needs: ({ credits }) => (Number(credits) <= 0 ? "operator" : undefined),
  check({ credits, expiresMs, requestId, grant }) {
    if (credits === 0) return { param: "credits", message: "credits must not be 0, which changes nothing." };
    const isGiven = credits > 0;
    const ofGiven = { expires_at: expiresMs, request_id: requestId };
    const misplaced = Object.entries(isGiven ? { grant } : ofGiven).find(
      ([, value]) => value !== undefined,
    )?.[0];
    if (misplaced === undefined) return null;
    const sign = isGiven ? "taken away: credits must be negative" : "given: credits must be positive";
    return { param: misplaced, message: `${misplaced} belongs to credits that are ${sign}.` };
  },
  done({ account, operation_id, credits, again, spending_caps }: AdjustmentJson) {
    if (again) return `Adjustment ${operation_id} was made before. Nothing has changed.`;
    const amount = `${grouped(Math.abs(credits))} promotional credits`;
    if (credits < 0) return `${amount} taken from ${account}.`;
    return `${amount} given to ${account}.${cappedText(spending_caps)}`;
  },
});

export const refundCredits = action({
  id: "refundCredits",
  title: "Take back the credits of a payment that was returned",
  help: "Takes what is neither spent nor held of this payment. `rest_micro` is held by running requests, and can be refunded when these have ended. Each refund id takes effect once, also if it could take nothing. The journal keeps the reason.",
  http: "POST /admin/accounts/{account}/refunds",
  cli: "credits refund <account> <credits>",
  examples: ['credits refund ada 50000 --payment inv-2041 --id refund-17 --reason "half was not used"'],
  role: "operator",
  input: {
    account: accountId,
    refund_id: idText(rules.id, {
      option: "--id <id>",
      about: "your id of this refund; a repetition changes nothing",
    }),
    payment_id: idText(rules.id, {
      label: "Payment id",
      option: "--payment <id>",
      about: "the id of the payment",
    }),
    credits,
    reason: optional(reason),
  },
  refuses: ["payment_not_found", "refund_differs", "refund_used", "refund_too_large", "sign_in_again"],
  form: {
    title: "Refund a payment of {name}",
    intro:
      "Takes back credits of a payment that you have returned. Credits that were spent, or that running requests hold, are not taken.",
    submit: "Take the credits back",
    isDangerous: true,
  },
  done({ account, refund_id, refunded_micro, rest_micro, again }: RefundJson) {
    const taken = exactCredits(refunded_micro);
    if (again) return `Refund ${refund_id} was made before, of ${taken} credits. Nothing has changed.`;
    const refunded = `${taken} credits refunded from ${account}.`;
    if (rest_micro === 0) return refunded;
    return `${refunded} The other ${exactCredits(rest_micro)} are held by running requests, and can be refunded when these have ended.`;
  },
});
