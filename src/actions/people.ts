/** Actions of operators on people who sign in. Pages bundle this file. */
import type { PersonJson } from "../accounts/person-objects.ts";
import * as rules from "../accounts/value-rules.ts";
import { action } from "./action.ts";
import { choice, idText, text } from "./field.ts";
import { accountId } from "./fields.ts";

const personId = text(rules.note, {
  label: "Person",
  rule: `the id of a person, ${rules.note.rule}`,
  about: "as person list shows it",
});

export const addPerson = action({
  id: "addPerson",
  title: "Give an account to a person behind a front end, before the first request",
  help: "A front end that opens no accounts serves only people who were added. The person sends requests and the account pays. It is final. A repetition changes nothing.",
  http: "POST /admin/people",
  cli: "person add <front_end> <value> <account>",
  examples: ["person add webui 4f1c2d3e ada"],
  role: "operator",
  input: {
    front_end: text(rules.frontEnd, { label: "Front end", about: "the name in its key" }),
    value: idText(rules.personValue, {
      label: "Value of the header",
      hint: "As the front end sends it. Capital letters do not matter.",
      about: "how the front end names the person in its header",
    }),
    account: accountId,
  },
  refuses: ["person_linked", "account_not_found"],
  form: {
    title: "Add a person behind a front end",
    intro:
      "Requests that the front end sends for this person are paid by the account. This is final. Several people can have one account.",
    submit: "Add the person",
  },
  done: ({ id, account }: PersonJson) => `Person ${id} has the account ${account}.`,
});

export const linkPerson = action({
  id: "linkPerson",
  title: "Link an account to a person who has none",
  help: "The person sees the account in the portal and makes keys of it. A link is final. Several people can have one account.",
  http: "POST /admin/people/{person}/account",
  cli: "person link <person> <account>",
  examples: ["person link person_1f2e3d4c5b6a7988 ada"],
  role: "operator",
  input: { person: personId, account: accountId },
  refuses: ["person_not_found", "person_linked", "person_erased", "account_not_found"],
  form: {
    title: "Link an account to {name}",
    intro:
      "The person sees the account in the portal and makes keys of it. A link is final. Several people can have one account.",
    submit: "Link the account",
  },
  done: ({ id, account }: PersonJson) => `Person ${id} has the account ${account}.`,
});

export const changePersonState = action({
  id: "changePersonState",
  title: "Suspend a person, or end that",
  help: "The sessions of a suspended person end, and further sign-ins are refused. The account and its keys stay as they are. A repetition changes nothing.",
  http: "POST /admin/people/{person}/state",
  role: "owner",
  input: { person: personId, state: choice(["active", "suspended"], { rule: '"active" or "suspended"' }) },
  refuses: ["person_not_found", "person_erased"],
  cases: {
    field: "state",
    of: {
      suspended: {
        cli: "person suspend <person>",
        title: "Suspend {name}",
        submit: "Suspend the person",
        intro:
          "The sessions of the person end, and further sign-ins are refused. Account and keys stay as they are.",
        isDangerous: true,
      },
      active: {
        cli: "person resume <person>",
        title: "Resume {name}",
        submit: "Resume the person",
        intro: "The person may sign in again.",
      },
    },
  },
  done: ({ id, suspended_at }: PersonJson) =>
    suspended_at === null ? `Person ${id} may sign in.` : `Person ${id} is suspended.`,
});

export const exportPerson = action({
  id: "exportPerson",
  title: "Export everything that the database has about a person",
  help: "The lists are read while they are sent: if the database fails in between, the document is cut off. If other people have the account, its contact, journal and receipts are left out.",
  http: "GET /admin/people/{person}/data",
  cli: "person export <person>",
  examples: ["person export person_1f2e3d4c5b6a7988 > ada.json"],
  role: "operator",
  input: { person: personId },
  refuses: ["person_not_found"],
});

export const erasePerson = action({
  id: "erasePerson",
  title: "Erase the data of a person, for good",
  help: "Erases `sub`, name, e-mail, role and sessions, and the values of the changes of the person. If nobody else has the account, also its contact and the values of its changes. Account, credits, keys, journal and receipts stay. A repetition erases what has come since.",
  http: "DELETE /admin/people/{person}/data",
  cli: "person erase <person>",
  examples: ["person erase person_1f2e3d4c5b6a7988 --yes"],
  role: "owner",
  input: { person: personId },
  refuses: ["person_not_found", "sign_in_again"],
  form: {
    title: "Erase the data of {name}",
    intro:
      "Name, e-mail and sessions are erased. The contact of the account is erased too, unless somebody else has the account. Account, keys, credits and receipts stay. To stop the keys, suspend or close the account. This cannot be undone.",
    submit: "Erase for good",
    isDangerous: true,
  },
  done: ({ id }: PersonJson) => `The data of person ${id} is erased.`,
});
