/** `/admin/accounts/import`: opens and changes many accounts with one request. */
import Type from "typebox";
import {
  additionalRule,
  balanceFields,
  type ImportedAccount,
  type ImportProblem,
  type ImportResult,
  importProblemsShown,
  leftRule,
  startRule,
} from "../../accounts/account-import.ts";
import { closed, orNull } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { importObject } from "../../accounts/operator-objects.ts";
import { invalidValue } from "../../accounts/refusals.ts";
import * as rules from "../../accounts/value-rules.ts";
import { invariant, type Refusal } from "../../errors.ts";
import { defined } from "../../objects.ts";
import type { Contact } from "../../store/contacts.ts";
import { type ApiApp, route } from "../api/app.ts";
import { actorOf } from "./sign-in.ts";

/** Accounts of one request. With ordinary texts they have about 3 MiB. */
const importedAccountsMax = 10_000;
const importBodyBytesMax = 4 * 1024 * 1024;

/** The import checks the values, so that one answer has all faults. */
const importedAccount = closed({
  id: ofImport(rules.name),
  plan: Type.Optional(ofImport(rules.name)),
  owner: Type.Optional(orNull(ofImport(rules.contact))),
  email: Type.Optional(orNull(ofImport(rules.email))),
  note: Type.Optional(orNull(ofImport(rules.remark))),
  external_id: Type.Optional(orNull(ofImport(rules.contact))),
  base_left: Type.Optional(Type.Number({ description: leftRule })),
  base_start: Type.Optional(ofImport({ rule: startRule })),
  overage_left: Type.Optional(Type.Number({ description: leftRule })),
  overage_start: Type.Optional(ofImport({ rule: startRule })),
  additional: Type.Optional(Type.Number({ description: additionalRule })),
  payment: Type.Optional(ofImport(rules.note)),
});

function ofImport({ rule }: Pick<rules.TextField, "rule">) {
  return Type.String({ description: rule });
}

export function importRoute(app: ApiApp, actions: OperatorActions): void {
  app.post(
    "/admin/accounts/import",
    route(
      "importAccounts",
      {
        role: "operator",
        summary: "Open accounts with what they bring along, and set contacts",
        description:
          "The whole list is checked before anything is written. An account that exists gets the contact fields that are given; its plan and its credits stay, and `plan_differs` and `balances_ignored` report that. Without `plan` the account must exist. `base_left` is what is left in the window that began at `base_start`, and `additional` is promotional unless `payment` names its payment. With `dry_run` nothing is written. A repetition changes nothing, and completes an import that has failed. No keys are issued.",
        body: closed({
          accounts: Type.Array(importedAccount, {
            minItems: 1,
            maxItems: importedAccountsMax,
            description: `a list of 1 to ${importedAccountsMax} accounts`,
          }),
          dry_run: Type.Optional(Type.Boolean()),
        }),
        response: { 200: importObject.schema },
      },
      { bodyLimit: importBodyBytesMax },
    ),
    async (request) => {
      const { accounts, dry_run = false } = request.body;
      const imported = accounts.map((each) => ({
        ...{ id: each.id, plan: each.plan ?? null, contact: contactIn(each) },
        balances: balancesIn(each),
      }));
      const own = actions.as(actorOf(request));
      const result = await own.importAccounts(imported, { dryRun: dry_run, issueKeys: null });
      if (result.kind === "done") return importObject.of(result);
      throw result.kind === "failed" ? result.error : refusalOfImport(result);
    },
  );
}

type BalanceBody = { [F in (typeof balanceFields)[number]]?: string | number };

/** The import checks numbers as the texts of a file. */
function balancesIn(body: BalanceBody): ImportedAccount["balances"] {
  const texts = balanceFields.map((field) => [field, body[field]?.toString()]);
  return defined(Object.fromEntries(texts));
}

/** `param` names the first fault, and the message lists them all. */
function refusalOfImport({ problems, lines }: Extract<ImportResult, { kind: "refused" }>): Refusal {
  const [first] = problems;
  invariant(first !== undefined, "an import is refused for a reason");
  const place = ({ index, field }: ImportProblem) => `accounts[${index}].${field}`;
  const shown = problems.slice(0, importProblemsShown).map((each) => `${place(each)}: ${each.message}`);
  const more = problems.length > shown.length ? [`And ${problems.length - shown.length} more.`] : [];
  const done =
    lines.length === 0 ? "Nothing has changed." : `The first ${lines.length} accounts are imported.`;
  return invalidValue(place(first), [done, ...shown, ...more].join("\n"));
}

interface ContactBody {
  owner?: string | null;
  email?: string | null;
  note?: string | null;
  external_id?: string | null;
}

/** Absent fields stay absent. */
function contactIn({ owner, email, note, external_id: externalId }: ContactBody): Partial<Contact> {
  return defined({ owner, email, note, externalId });
}
