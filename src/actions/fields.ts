/** The fields that several actions have. Pages bundle them. */
import { allOf, planLimits } from "../accounts/plan-limits.ts";
import * as rules from "../accounts/value-rules.ts";
import type { PortalRights } from "../ledger/rows.ts";
import type { Alignment } from "../ledger/windows.ts";
import { timezoneRule } from "../units.ts";
import { calendarPeriods, capText } from "./cap-text.ts";
import {
  choice,
  type Field,
  type Fields,
  group,
  idText,
  type ListText,
  list,
  moment,
  nullable,
  number,
  optional,
  optionally,
  text,
} from "./field.ts";

const asListed = "as account list shows it";

export const accountId = text(rules.name, { label: "Account", about: asListed });
/** Of an account that may not exist yet. */
export const newAccountId = text(rules.name, {
  label: "Account",
  hint: "Its permanent id: lower-case letters, digits, dots, dashes and underscores.",
  about: "lower-case letters, digits, dots, dashes, underscores",
});
export const keyId = text(rules.note, { about: "as key list shows it" });

export function operationId(): Field<string> {
  return idText(rules.id, {
    rule: `an id of your own for this change alone, ${rules.id.rule}; a repetition changes nothing`,
    option: "--id <id>",
    about: "your id of this change; a repetition changes nothing",
  });
}

export const limitFields = allOf(planLimits, ({ label, option, about }) =>
  number(rules.limit, "a whole number", { label, option, about }),
);

export const period = "an ISO 8601 period such as PT5H, P1D or P1M";

const units: Readonly<Record<string, string>> = { TH: "hour", D: "day", W: "week", M: "month", Y: "year" };

/** Returns `week` for `P1W`, and `180 days` for `P180D`. Other periods stay as they are. */
export function periodTitle(every: string): string {
  const [, time = "", count = "", letter = ""] = /^P(T?)(\d+)([A-Z])$/.exec(every) ?? [];
  const unit = units[time + letter];
  return unit === undefined ? every : count === "1" ? unit : `${count} ${unit}s`;
}

/** Periods that forms offer for a cap, with their titles. */
export const capPeriods = ["PT5H", "P1D", "P1W", "P1M"].map((every) => [every, periodTitle(every)] as const);
const capEvery: Field<string> = {
  kind: "text",
  check: "refill period",
  rule: period,
  option: "--every <period>",
  label: "Budget period",
  hint: "The budget is full again after each period.",
  presets: [["", "no budget"], ...capPeriods],
  about: "period of the budget, ISO 8601: PT5H, P1D, P1M",
};
const capAlign: Field<Alignment> = choice(["opening", "calendar"], {
  label: "Refill of the budget",
  rule: '"opening" (the default: windows begin when the first one began) or "calendar"',
  titles: ["from its start on", "by the calendar"],
  isShown: hasCalendarPeriod,
  option: "--align <alignment>",
  about: "windows of the budget: from its beginning on (opening), or days, weeks or months (calendar)",
});
const capTimezone: Field<string> = {
  kind: "text",
  check: "timezone",
  rule: `${timezoneRule}, for windows of the calendar; by default that of the plan`,
  label: "Time zone of the budget",
  hint: "A name such as Europe/Berlin. Without one, it is the time zone of the plan.",
  isShown: (texts) => hasCalendarPeriod(texts) && texts["spending_caps.align"] === "calendar",
  option: "--timezone <zone>",
  about: "zone of a calendar, such as Europe/Berlin (default: that of the plan)",
};

/** The parts that caps of plans and of keys share. */
export const capParts = {
  name: optionally.text(rules.capName, {
    label: "Name",
    hint: "Needed only if two caps have the same period.",
  }),
  models: optional<Field<readonly string[]>>({
    kind: "texts",
    item: { ...rules.note, rule: "the id of a model, in which * stands for any characters" },
    max: 100,
    charactersMax: 1000,
    rule: "a list of 1 to 100 model ids of 1,000 characters in all, or of *",
    label: "Models",
    hint: "Without a tick: all models.",
  }),
};

/** Up to four caps that hold together. `form`: how people write them. */
export function caps<const F extends Fields>(item: F, form: ListText) {
  return list(item, {
    max: rules.capsMax,
    text: form,
    rule: `up to ${rules.capsMax} caps, each with credits and period`,
    label: "Spending caps",
    hint: `Up to ${rules.capsMax} hold together, each for its models.`,
    option: "--caps <caps>",
    about: `up to ${rules.capsMax} caps that hold together: "${form.example}"; "none" removes them`,
  });
}

/** What a key may spend. A list of one is a budget: on the command line and in forms its parts. */
const spendingCaps = caps(
  {
    credits: number(rules.cap, "whole credits", {
      label: "Budget in credits",
      option: "--budget <credits>",
      about: "credits that the key may spend in each period; needs --every",
    }),
    every: capEvery,
    align: optional(capAlign),
    timezone: optional(capTimezone),
    ...capParts,
  },
  capText,
);

const name = text(rules.label, {
  label: "Name",
  hint: "For whom or what the key is.",
  about: "a label, to recognise the key in lists",
  option: "--name <name>",
});
export const models: Field<readonly string[]> = {
  kind: "texts",
  item: { ...rules.note, rule: "the id of a model, or *" },
  max: 100,
  charactersMax: 4000,
  rule: "a list of 1 to 100 model ids of 4,000 characters in all, or of *",
  label: "Models",
  hint: "Without a tick: all models of the plan. Prices: credits for a million tokens of prompts / of answers.",
  option: "--models <ids>",
  about: "models that the key may use, comma-separated; * for all of the plan, which is the default",
};
const expiresAt = moment({
  label: "Expires at (UTC)",
  option: "--expires <time>",
  about: "expiry: the last day, 2027-01-31, or a time, 2027-01-31T18:00:00Z",
});

/** Settings of a new key, in the order of its form. */
export const newKeySettings = {
  name: optional(name),
  spending_caps: optional(spendingCaps),
  models: optional(models),
  expires_at: optional(expiresAt),
  ...allOf(limitFields, (field) => optional(field)),
};

/** Settings that a change of a key can have. */
export const changedKeySettings = {
  name: optional(nullable(name)),
  spending_caps: optional(spendingCaps),
  models: optional(models),
  expires_at: optional(nullable(expiresAt)),
  ...allOf(limitFields, (field) => optional(nullable(field))),
};

/** The front end of a new key. Operators set it, and it never changes. */
export const actsFor = group(
  {
    name: text(rules.frontEnd, {
      label: "Front end",
      hint: "Only for a program with people behind it, such as webui. Their accounts pay its requests.",
      option: "--acts-for <name>",
      about: "the front end whose key it is: the people behind it have accounts of their own, which pay",
    }),
    header: text(rules.personHeader, {
      label: "Header that names the person",
      isShown: isFrontEnd,
      option: "--person-header <header>",
      about: "the header that names the person, such as x-openwebui-user-id",
    }),
    name_header: optionally.text(rules.personHeader, {
      label: "Header with their name",
      hint: "For you to read. It never decides who somebody is.",
      isShown: isFrontEnd,
      option: "--name-header <header>",
      about: "the header with the name of the person, which lists of people show beside the id",
    }),
    email_header: optionally.text(rules.personHeader, {
      label: "Header with their e-mail address",
      hint: "For you to read. It never decides who somebody is.",
      isShown: isFrontEnd,
      option: "--email-header <header>",
      about: "the header with the e-mail address of the person, which lists of people show",
    }),
    plan: optionally.text(rules.name, {
      label: "Plan of unknown people",
      hint: "Without a plan, unknown people are refused.",
      isShown: isFrontEnd,
      option: "--new-account-plan <plan>",
      about: "the plan of the account that an unknown person gets; without it, unknown people are refused",
    }),
    new_accounts_per_day: optionally.number(rules.newAccounts, "a whole number", {
      label: "New accounts a day",
      isShown: isFrontEnd,
      about: "the most accounts that the front end opens in a day; needs --new-account-plan",
    }),
  },
  { label: "Front end", option: "--acts-for" },
);

/** What a key may do in the portal. Operators set it. */
export const portalRights: Field<PortalRights> = choice(["own", "account"], {
  label: "In the portal",
  rule: '"own" or "account": what the key may do in the portal',
  titles: ["sees itself", "manages all keys of the account"],
  option: "--portal <rights>",
  about: "what the key may do in the portal: see itself, or manage all keys of its account",
});

function isFrontEnd(texts: Readonly<Record<string, string>>): boolean {
  return (texts["acts_for.name"] ?? "") !== "";
}

export function hasCalendarPeriod(texts: Readonly<Record<string, string>>): boolean {
  return calendarPeriods.includes(texts["spending_caps.every"] ?? "");
}
