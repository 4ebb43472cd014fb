/** Actions of operators on links by which many people join. Pages bundle this file. */
import type { LinkClosingJson, LinkJson, NewLinkJson } from "../accounts/link-objects.ts";
import * as rules from "../accounts/value-rules.ts";
import { shortTime } from "../units.ts";
import { action } from "./action.ts";
import { moment, number, optional, optionally, text } from "./field.ts";
import { operationId } from "./fields.ts";

export const linkId = text(
  { pattern: /^link_[0-9a-f]{16}$/, rule: "the id of a link: link_ and 16 letters and digits" },
  { label: "Link", about: "as link list shows it" },
);

const name = text(rules.label, {
  label: "Name",
  hint: "Such as the name of the class. The names of accounts begin with it.",
  option: "--name <name>",
  about: "such as the name of the class; the names of accounts begin with it",
});
const seats = number(rules.seats, "a whole number", {
  label: "Seats",
  hint: "How many accounts the link opens at most. A closed account frees none.",
  option: "--seats <number>",
  about: "how many accounts it opens at most; a closed account frees none",
});
const endsAt = moment({
  label: "Nobody can join after (UTC)",
  option: "--ends <time>",
  about: "nobody can join after this time, or this day: ISO 8601",
});

export const createLink = action({
  id: "createLink",
  title: "Make a link by which many people join, each with an account of their own",
  help: "Only the response that makes the link (201) contains it. Anyone who has it can take seats: as many as are left. Without a mail server, a name is asked, and the person is in the portal at once. With one, an address is asked, and a one-time link is mailed to it. `domain` needs a mail server. `accounts_end_at` closes the accounts.",
  http: "POST /admin/links",
  cli: "link create",
  examples: [
    'link create --name "Informatics 1" --plan student --seats 40 --ends 2027-12-20',
    'link create --name "Informatics 1" --plan student --seats 40 --ends 2027-12-20 --accounts-end 2028-03-01',
  ],
  role: "operator",
  once: "operation_id",
  input: {
    operation_id: operationId(),
    name,
    plan: text(rules.name, {
      rule: "the name of a plan of the configuration",
      label: "Plan",
      option: "--plan <plan>",
      about: "the plan of the accounts, which plans list shows as offered",
    }),
    seats,
    ends_at: endsAt,
    domain: optionally.text(rules.domain, {
      label: "Domain",
      hint: "Only addresses of this domain join. This needs a mail server.",
      option: "--domain <domain>",
      about: "only addresses of this domain join, such as uni.example; needs a mail server",
    }),
    accounts_end_at: optionally.moment({
      label: "Accounts close at (UTC)",
      hint: "Without it they stay open.",
      option: "--accounts-end <time>",
      about: "close the accounts at this time, or after this day",
    }),
  },
  refuses: ["no_portal_url", "no_mail_server", "operation_differs"],
  status: 201,
  form: {
    title: "Make a link for a class",
    intro:
      "Many people join by one link, each with an account of their own. Anyone who has the link can take seats.",
    submit: "Make the link",
  },
  done: ({ name, seats, ends_at }: NewLinkJson) =>
    `The link of ${name} has ${seats} seats, and works until ${shortTime(ends_at)}. It is shown only now.`,
});

export const setLink = action({
  id: "setLink",
  title: "Change the name, the seats or the end of a link",
  help: "Fields that are missing stay. A later end opens a link again whose time is over. A repetition changes nothing.",
  http: "PATCH /admin/links/{link}",
  cli: "link set <link>",
  examples: ["link set link_1f2e3d4c5b6a7988 --seats 45"],
  role: "operator",
  input: { link: linkId, name: optional(name), seats: optional(seats), ends_at: optional(endsAt) },
  refuses: ["link_not_found", "link_ended"],
  form: { title: "Change the link of {name}", submit: "Change the link" },
  done: ({ name, seats, taken, ends_at }: LinkJson) =>
    `The link of ${name} has ${seats} seats, ${taken} of them taken, and works until ${shortTime(ends_at)}.`,
});

export const rotateLink = action({
  id: "rotateLink",
  title: "Replace a link by a new one, with the same seats",
  help: "The old link ends at once, and so do mailed links that wait for their use. Accounts stay as they are. Each repetition makes another link.",
  http: "POST /admin/links/{link}/rotate",
  cli: "link rotate <link>",
  role: "operator",
  input: { link: linkId },
  refuses: ["link_not_found", "link_ended", "no_portal_url"],
  status: 201,
  form: {
    title: "Replace the link of {name}",
    intro:
      "The old link ends at once, and so do mailed links that wait for their use. Accounts stay as they are.",
    submit: "Make a new link",
    isDangerous: true,
  },
  done: ({ name }: NewLinkJson) => `The new link of ${name} is shown only now. The old one has ended.`,
});

export const endLink = action({
  id: "endLink",
  title: "End a link, at once and for good",
  help: "Nobody can join by it any more. Its accounts stay as they are. A repetition changes nothing.",
  http: "POST /admin/links/{link}/end",
  cli: "link end <link>",
  role: "support",
  input: { link: linkId },
  refuses: ["link_not_found"],
  form: {
    title: "End the link of {name}",
    intro: "Nobody can join by it any more. Its accounts stay as they are. This cannot be undone.",
    submit: "End for good",
    isDangerous: true,
  },
  done: ({ name, taken }: LinkJson) =>
    `The link of ${name} has ended. ${taken === 1 ? "1 account stays as it is" : `${taken} accounts stay as they are`}.`,
});

export const closeLinkAccounts = action({
  id: "closeLinkAccounts",
  title: "Close all accounts that a link has opened, for good",
  help: "Base and overage credits lapse, additional credits stay. A link that has not ended opens further accounts: end it first. A repetition closes the accounts that are left.",
  http: "POST /admin/links/{link}/close-accounts",
  cli: "link close-accounts <link>",
  role: "operator",
  input: { link: linkId },
  refuses: ["link_not_found"],
  form: {
    title: "Close all accounts of {name}",
    intro:
      "Their keys and people are refused from now on. Base and overage credits lapse. This cannot be undone. End the link first, or it opens further accounts.",
    submit: "Close all accounts",
    isDangerous: true,
  },
  done: ({ id, closed, state }: LinkClosingJson) =>
    `${closed === 1 ? "1 account" : `${closed} accounts`} of link ${id} ${closed === 1 ? "is" : "are"} closed.${state === "ended" ? "" : " The link has not ended, and can open further ones."}`,
});
