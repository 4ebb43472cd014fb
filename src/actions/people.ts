/** What operators do with people who sign in with OpenID Connect. Pages bundle this file. */
import * as rules from "../accounts/value-rules.ts";
import { action } from "./action.ts";
import { choice, text } from "./field.ts";
import { accountId } from "./fields.ts";

const personId = text(rules.note, { rule: `the id of a person, ${rules.note.rule}` });

export const linkPerson = action({
  id: "linkPerson",
  title: "Link an account to a person who has none",
  help: "The person sees the account in the portal and makes keys of it. A link is final. Several people can have one account.",
  http: "POST /admin/people/{person}/account",
  role: "operator",
  input: { person: personId, account: accountId },
  refuses: ["person_not_found", "person_linked", "account_not_found"],
});

export const changePersonState = action({
  id: "changePersonState",
  title: "Suspend a person, or end that",
  help: "The sessions of a suspended person end, and further sign-ins are refused. The account and its keys stay as they are. A repetition changes nothing.",
  http: "POST /admin/people/{person}/state",
  role: "owner",
  input: { person: personId, state: choice(["active", "suspended"], { rule: '"active" or "suspended"' }) },
  refuses: ["person_not_found"],
});
