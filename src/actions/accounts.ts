/** How operators change accounts. Pages bundle this file. */
import type { InvitationJson } from "../accounts/invitations.ts";
import type { AccountJson } from "../accounts/operator-objects.ts";
import * as rules from "../accounts/value-rules.ts";
import { shortTime } from "../units.ts";
import { action } from "./action.ts";
import { paymentId } from "./credits.ts";
import { choice, type Field, idText, moment, nullable, optional, optionally, text } from "./field.ts";
import { accountId, newAccountId, operationId } from "./fields.ts";

const plan: Field<string> = {
  kind: "text",
  rule: "the name of a plan of the configuration",
  label: "Plan",
  option: "--plan <plan>",
  about: "a plan that plans list shows as offered",
};

/** When a plan changes. */
const at = choice(["refresh", "now", "new_window"], {
  rule: '"refresh" (default), "now" or "new_window"',
  label: "When",
  titles: [
    "At the next refresh of the base credits",
    "Now, if its windows are the same",
    "Now, with new windows where they differ",
  ],
  option: "--at <time>",
  about: "when the plan changes: at the next refresh of the base credits (the default), or now",
  flags: { new_window: "--new-window" },
});

/** The command of three actions. */
const set = "account set <account>";

/** The names by which people and other systems know an account. */
export const contact = {
  owner: removable(text, rules.contact, {
    label: "Owner",
    option: "--owner <text>",
    about: "the person or company that the account belongs to",
  }),
  email: removable(text, rules.email, {
    label: "E-mail",
    option: "--email <address>",
    about: "an e-mail address for people",
  }),
  note: removable(text, rules.remark, {
    label: "Note",
    option: "--note <text>",
    about: "a note of yours",
  }),
  external_id: removable(idText, rules.id, {
    label: "External id",
    hint: "The id of the account in another system.",
    option: "--external-id <id>",
    about: "the id of the account in another system, unique",
  }),
};

/** An empty text of the command line, and null of the API, remove it. */
function removable(make: typeof text, rule: rules.TextField, texts: Parameters<typeof text>[1]) {
  return optional(nullable(make(rule, { ...texts, isRemovedByEmpty: true })));
}

/** Kinds of mail about an account. */
export const mailChoices = {
  balance_low_mail: mailChoice("Mail about low credits"),
  balance_cap_mail: mailChoice("Mail about spending caps"),
  balance_exhausted_mail: mailChoice("Mail when no credits are left"),
  key_expiring_mail: mailChoice("Mail before a key expires"),
};

export const mailNames = Object.keys(mailChoices) as (keyof typeof mailChoices)[];

function mailChoice(label: string) {
  return optionally.choice(rules.onOrOff, {
    rule: '"on" or "off"',
    label,
    titles: ["Send it", "Do not send it"],
  });
}

export const openAccount = action({
  id: "openAccount",
  title: "Open an account",
  help: "A repetition with the same plan and credits returns 200 and the present account unchanged, even if its plan has changed since. `credits` are additional credits: those of a payment, or promotional without `payment_id`. With `dry_run` nothing changes: the response is 200, with the account as it would be.",
  http: "POST /admin/accounts",
  cli: "account create <id>",
  role: "operator",
  input: {
    id: newAccountId,
    plan,
    ...contact,
    credits: optionally.number(rules.topup, "whole credits", {
      label: "Additional credits",
      hint: "Beside those of the plan.",
      option: "--credits <credits>",
      about: "additional credits, beside those of the plan",
    }),
    payment_id: optional({
      ...paymentId,
      hint: "The payment of the additional credits. Without it they are promotional.",
      about: "your id of the payment of the additional credits; without it they are promotional",
    }),
    dry_run: optionally.flag({ isShown: () => false, about: "check everything, and change nothing" }),
  },
  check: ({ credits, paymentId }) =>
    paymentId === undefined || credits !== undefined
      ? null
      : { param: "credits", message: "payment_id needs credits: the additional credits of the payment." },
  refuses: ["account_exists", "external_id_used", "payment_used"],
  status: 201,
  form: {
    title: "Open an account",
    intro: "The account starts with full credits of its plan.",
    submit: "Open the account",
  },
  done: ({ id, plan }: AccountJson) => `Account ${id} is open, on plan ${plan}.`,
});

export const changePlan = action({
  id: "changePlan",
  title: "Change the plan of an account",
  help: "`at` is `refresh` (the default): at the end of the base window, shown as `next_plan`. Or it is `now`, which is refused if the plan has other windows, or `new_window`: now, with a new window for each bucket that has another one. A change to the present plan cancels a scheduled change. Each operation id takes effect once.",
  http: "PATCH /admin/accounts/{account}",
  cli: set,
  role: "operator",
  once: "operation_id",
  input: {
    account: accountId,
    operation_id: operationId(),
    plan: { ...plan, label: "New plan" },
    at: optional(at),
  },
  refuses: ["account_closed", "operation_differs", "window_differs"],
  form: { title: "Change the plan of {name}", submit: "Change the plan" },
  done: ({ id, plan, next_plan }: AccountJson) =>
    next_plan === null
      ? `Account ${id} is on plan ${plan}.`
      : `Account ${id} stays on plan ${plan} until the next refresh, and is on plan ${next_plan} from then on.`,
});

export const previewPlan = action({
  id: "previewPlan",
  title: "Show what a change of the plan would do",
  help: "Changes nothing. `after` is the balance at `effective_at`, if nothing is spent until then. For `refresh` that is the end of the base window.",
  http: "POST /admin/accounts/{account}/plan-preview",
  role: "viewer",
  input: { account: accountId, plan, at: optional(at) },
  refuses: ["account_closed", "window_differs"],
});

export const setContact = action({
  id: "setContact",
  title: "Set the owner, e-mail, note or external id of an account, and the mail that it gets",
  help: "Fields that are missing stay. null removes a field. A repetition changes nothing.",
  http: "PATCH /admin/accounts/{account}/contact",
  cli: set,
  role: "operator",
  input: { account: accountId, ...contact, ...mailChoices },
  refuses: ["external_id_used"],
  form: { title: "Edit the contact of {name}", submit: "Save the contact" },
  done: ({ id }: AccountJson) => `The contact of account ${id} is changed.`,
});

export const inviteAccount = action({
  id: "inviteAccount",
  title: "Invite a person to an account by a one-time link",
  help: "The link makes a session of the portal, in which the person makes keys. It works once, for seven days, and a newer one ends it. The address is that of the contact. A contact without an address gets this one, which needs the role `operator`. The account of somebody who has joined by a link needs none: the link leads to this person. Anyone who has the link is taken for the person. `link` is null if it was mailed.",
  http: "POST /admin/accounts/{account}/invitation",
  cli: "account invite <account>",
  examples: ["account invite ada", "account invite ada --email ada@example.com --send mail"],
  role: "support",
  status: 201,
  input: {
    account: accountId,
    email: optionally.text(rules.email, {
      label: "E-mail",
      option: "--email <address>",
      about: "the address of the account's contact, which may be left out",
    }),
    send: optionally.choice(["link", "mail"], {
      label: "Give it out",
      rule: '"link" (default): the link is returned, or "mail": it is sent by mail',
      titles: ["Show the link here, once", "Send it by mail"],
      option: "--send <way>",
      about: "show the link (link, the default), or send it by mail (mail)",
    }),
  },
  refuses: [
    "account_closed",
    "contact_differs",
    "person_suspended",
    "no_portal_url",
    "no_mail_server",
    "mail_failed",
  ],
  form: {
    title: "Invite a person to {name}",
    intro:
      "The person gets a link that works once, for seven days. Anyone who has the link is taken for the person. An earlier link ends.",
    submit: "Make the link",
  },
  done: ({ account, email, link }: InvitationJson) =>
    link === null
      ? `The invitation to account ${account} is mailed to ${email}.`
      : `The invitation to account ${account} is for ${email ?? "the person who has joined"}.`,
});

/** Filters and orders of the list in a page: of choices, the first one is the default. */
export const accountFilters = [
  { name: "search", label: "Search" },
  {
    name: "state",
    label: "state",
    isLabelHidden: true,
    options: [
      ["", "any state"],
      ["active", "active"],
      ["suspended", "suspended"],
      ["closed", "closed"],
    ],
  },
  {
    name: "order",
    label: "order",
    isLabelHidden: true,
    options: [
      ["", "by id"],
      ["remaining", "by credits left"],
      ["additional", "by additional credits"],
      ["created", "by opening"],
      ["plan", "by plan"],
    ],
  },
  {
    name: "direction",
    label: "direction",
    isLabelHidden: true,
    options: [
      ["", "ascending"],
      ["desc", "descending"],
    ],
  },
  { name: "low_balance", label: "almost used up", as: "box" },
  { name: "not_come", label: "not come yet", as: "box" },
  { name: "plan", label: "plan", as: "link" },
] as const;

const state = choice(["active", "suspended", "closed"], { rule: '"active", "suspended" or "closed"' });

export const changeState = action({
  id: "changeState",
  title: "Suspend, resume or close an account",
  help: "A `suspended` account gets no new requests answered; running requests end with what they hold, and windows go on. `active` ends that. `closed` is final: base and overage credits lapse, additional credits stay, and payments can be refunded. Each operation id takes effect once.",
  http: "POST /admin/accounts/{account}/state",
  role: "support",
  once: "operation_id",
  input: { account: accountId, operation_id: operationId(), state },
  needs: ({ state }) => (state === "closed" ? "operator" : undefined),
  refuses: ["account_closed", "operation_differs"],
  cases: {
    field: "state",
    of: {
      suspended: {
        cli: "account suspend <account>",
        title: "Suspend {name}",
        submit: "Suspend the account",
        intro:
          "New requests are refused. Running requests finish, and the windows continue. You can resume it.",
        isDangerous: true,
      },
      active: {
        cli: "account resume <account>",
        title: "Resume {name}",
        submit: "Resume the account",
        intro: "Requests are answered again, with the credits that the account has now.",
      },
      closed: {
        cli: "account close <account>",
        title: "Close {name}",
        submit: "Close for good",
        intro:
          "This is final. Base and overage credits lapse, and requests of all keys are refused. Additional credits stay, and payments can be refunded.",
        isDangerous: true,
      },
    },
  },
  done: ({ id, state }: AccountJson) => `Account ${id} is ${state}.`,
});

export const setEnd = action({
  id: "setEnd",
  title: "Set the time at which an account closes, or remove it",
  help: "A time that has passed closes the account now. Each operation id takes effect once.",
  http: "POST /admin/accounts/{account}/end",
  cli: set,
  role: "operator",
  once: "operation_id",
  input: {
    account: accountId,
    operation_id: operationId(),
    ends_at: nullable(
      moment({
        label: "Closes at (UTC)",
        option: "--ends <time>",
        about: "close the account at this time, or after this day: ISO 8601",
      }),
    ),
  },
  refuses: ["account_closed", "operation_differs"],
  form: {
    title: "Set the end date of {name}",
    intro: "The account closes at this time, for good. Leave it empty to remove the end date.",
    submit: "Set the end date",
    isDangerous: true,
  },
  done: ({ id, state, ends_at }: AccountJson) =>
    state === "closed"
      ? `The time has passed: account ${id} is closed.`
      : ends_at === null
        ? `Account ${id} has no end.`
        : `Account ${id} closes at ${shortTime(ends_at)}.`,
});
