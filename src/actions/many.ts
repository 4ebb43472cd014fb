/**
 * Actions of operators on many accounts at once. Each row is applied by itself and has a result of
 * its own. Pages bundle this file.
 */
import * as rules from "../accounts/value-rules.ts";
import { grouped } from "../units.ts";
import { changePlan, changeState } from "./accounts.ts";
import { action } from "./action.ts";
import { addCredits } from "./credits.ts";
import { choice, type Field, optionally } from "./field.ts";
import { pageFields } from "./page-fields.ts";

/** The result of a row, also of one that is only checked. */
interface RowJson {
  result: string;
  /** Credits that it adds. */
  credits: number | null;
}

interface RowsJson {
  data: readonly RowJson[];
}

/** Of one request. */
const accountsMax = 1_000;
const hidden = { isShown: () => false };

/** They choose rows, and whether these are only checked. Forms do not show them. */
const ofRows = {
  dry_run: optionally.flag({ ...hidden, about: "check everything, and change nothing" }),
  limit: { ...pageFields.limit, ...hidden },
  after: { ...pageFields.after, ...hidden },
};

const inRows =
  "`limit` and `after` choose some of the rows; `next` is the last one, and null at the end. With `dry_run` nothing changes. Each row is applied by itself, and one that is refused says why. A request that is repeated changes nothing again.";

const accounts: Field<readonly string[]> = {
  kind: "texts",
  item: rules.name,
  max: accountsMax,
  rule: `a list of 1 to ${accountsMax} accounts`,
};

const { credits, payment_id } = addCredits.input;
const { operation_id, plan, at } = changePlan.input;

export const topUpAccounts = action({
  id: "topUpAccounts",
  title: "Top up many accounts",
  help: `The payment of an account has the payment id with the account behind it: \`inv-7-ada\`. ${inRows}`,
  http: "POST /admin/accounts/topups",
  role: "operator",
  input: {
    accounts,
    credits: { ...credits, label: "Credits for each" },
    payment_id: {
      ...payment_id,
      hint: "Each account gets it with its name behind it: inv-7-ada. With the same id nobody is topped up twice, also if you repeat this later.",
    },
    ...ofRows,
  },
  refuses: [],
  form: { title: "Top up {name}", submit: "Add the credits" },
  done: rowsSentence,
});

export const changePlans = action({
  id: "changePlans",
  title: "Change the plan of many accounts",
  help: `As a change of the plan of each of them, whose operation id has the account behind it. ${inRows}`,
  http: "POST /admin/accounts/plans",
  role: "operator",
  once: "operation_id",
  input: { accounts, operation_id, plan, at, ...ofRows },
  refuses: ["operation_differs"],
  form: { title: "Change the plan of {name}", submit: "Change the plans" },
  done: rowsSentence,
});

export const changeStates = action({
  id: "changeStates",
  title: "Suspend or resume many accounts",
  help: `As a change of the state of each of them, whose operation id has the account behind it. ${inRows}`,
  http: "POST /admin/accounts/states",
  role: changeState.role,
  once: "operation_id",
  input: {
    accounts,
    operation_id,
    state: choice(["suspended", "active"], {
      label: "State",
      rule: '"suspended" or "active"',
      titles: ["Suspended: new requests are refused", "Active: requests are answered again"],
    }),
    ...ofRows,
  },
  refuses: ["operation_differs"],
  form: { title: "Suspend or resume {name}", submit: "Change the states" },
  done: rowsSentence,
});

const csv: Field<string> = {
  kind: "text",
  rule: "CSV, with a line for each account",
  label: "CSV",
  hint: "The first line names the columns: account, plan, owner, email, note, external_id, additional, payment. Cells of a spreadsheet can be pasted.",
  isFile: true,
};

export const importAccountList = action({
  id: "importAccountList",
  title: "Open the accounts of a CSV file, row by row",
  help: `As \`account import\` does. The parts of a row need their roles. An invitation that was used is left out, and any other one gets a new link, which ends the one before. ${inRows}`,
  http: "POST /admin/accounts/import",
  role: "support",
  input: {
    csv,
    contacts: optionally.choice(["keep", "replace"], {
      label: "Contacts of accounts that exist",
      rule: '"keep" (default): they stay, or "replace": by the cells that are not empty',
      titles: ["Stay as they are", "Are replaced by the cells that are not empty"],
    }),
    invite: optionally.choice(["none", "link", "mail"], {
      label: "Invitations",
      rule: '"none" (default), "link": the links are returned, or "mail": they are sent by mail',
      titles: ["None", "Links in a file", "Links by mail"],
    }),
    ...ofRows,
  },
  refuses: ["no_portal_url", "no_mail_server"],
  form: { title: "Import accounts", submit: "Import" },
  done: rowsSentence,
});

function rowsSentence({ data }: RowsJson): string {
  if (data.length === 0) return "";
  const added = data.reduce((sum, row) => sum + (row.credits ?? 0), 0);
  const credits = added === 0 ? "" : ` Credits in all: ${grouped(added)}.`;
  return `Accounts: ${tally(data.map(({ result }) => result))}.${credits}`;
}

/** `2 made, 1 listed` */
export function tally(values: readonly (string | null)[]): string {
  const groups = Map.groupBy(values, (value) => value);
  groups.delete(null);
  const parts = [...groups].map(([value, all]) => `${grouped(all.length)} ${value?.replace("_", " ")}`);
  return parts.length === 0 ? "none" : parts.join(", ");
}
