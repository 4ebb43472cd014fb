/** Actions of operators on operator keys. Pages bundle this file. */
import type { NewOperatorKeyJson, OperatorKeyJson } from "../accounts/log-objects.ts";
import * as rules from "../accounts/value-rules.ts";
import { type OperatorRole, operatorRoles } from "../actors.ts";
import { shortTime } from "../units.ts";
import { action } from "./action.ts";
import { choice, optionally, text } from "./field.ts";
import { operationId } from "./fields.ts";

/** What each role may do, for people. */
export const roleTexts: Readonly<Record<OperatorRole, string>> = {
  viewer: "You see everything, and change nothing.",
  support: "You see everything, manage keys, invite people, stop requests, and suspend accounts.",
  operator: "You may do everything but suspend people and erase their data.",
  owner: "You may do everything.",
};

const roleRule = operatorRoles.map((role) => `"${role}"`).join(", ");

const keyId = text(
  { pattern: /^opkey_[0-9a-f]{16}$/, rule: "the id of an operator key: opkey_ and 16 letters and digits" },
  { label: "Operator key", about: "as operator list shows it" },
);

export const makeOperatorKey = action({
  id: "makeOperatorKey",
  title: "Make an operator key, for a program that uses the operator API",
  help: "Only the response that makes the key (201) contains it. The key may do what its role may do, and never more than its maker may do at that time. It ends at `expires_at` (default: in 90 days, at most in 366), with its maker, and with the operator token. Operator keys make no operator keys. The number of keys of a maker that work is limited.",
  http: "POST /admin/operator-keys",
  cli: "operator create <name>",
  examples: [
    "operator create grafana --role viewer",
    "KEY=$(operator create billing --role operator --expires 2027-01-31)",
  ],
  role: "support",
  once: "operation_id",
  input: {
    operation_id: operationId(),
    name: text(rules.label, {
      label: "Name",
      hint: "The program that uses it.",
      about: "the program that uses it",
    }),
    role: choice(operatorRoles, {
      rule: roleRule,
      label: "Role",
      option: "--role <role>",
      about: "what the key may do",
    }),
    expires_at: optionally.moment({
      label: "Expires at (UTC)",
      hint: "At most 366 days from now. Without one, the key ends in 90 days.",
      option: "--expires <time>",
      about: "expiry, as a time or the last day (default: in 90 days)",
    }),
  },
  refuses: ["operation_differs", "not_permitted", "sign_in_again", "too_many_keys"],
  status: 201,
  form: { title: "Make an operator key", submit: "Make the key" },
  done: ({ id, name }: NewOperatorKeyJson) =>
    `Operator key ${id} for ${name} is made. It is shown only now: keep it safe.`,
});

export const endOperatorKey = action({
  id: "endOperatorKey",
  title: "End an operator key, at once and for good",
  help: "An owner may end every key, others their own. A repetition changes nothing.",
  http: "DELETE /admin/operator-keys/{operator_key}",
  cli: "operator end <operator_key>",
  role: "viewer",
  input: { operator_key: keyId },
  refuses: ["key_not_found"],
  form: {
    title: "End the operator key {name}",
    intro: "The program that uses it is refused from now on. This cannot be undone.",
    submit: "End for good",
    isDangerous: true,
  },
  done: ({ id, ended_at }: OperatorKeyJson) => `Operator key ${id} has ended since ${shortTime(ended_at)}.`,
});
