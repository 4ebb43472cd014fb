/** The views of operators: lists, sums and single objects. */
import * as rules from "../accounts/value-rules.ts";
import { accountStates } from "../ledger/rows.ts";
import { changeKinds } from "../store/change-log.ts";
import { deliveryStates } from "../store/events.ts";
import { accountOrders, type ListedKind, listedKinds } from "../store/store.ts";
import { graphHoursMax } from "../store/usage-hours.ts";
import { usageGroups } from "../store/usage-sums.ts";
import { momentRule } from "../units.ts";
import type { Action } from "./action.ts";
import { eventEndpoint } from "./events.ts";
import { choice, type Field, type Fields, optional, optionally, text } from "./field.ts";
import { accountId, keyId } from "./fields.ts";
import { linkId } from "./links.ts";
import { pageFields, pageOptions } from "./page-fields.ts";

/** An action that changes nothing. */
function view<const F extends Fields>(
  parts: Omit<Action<F, unknown>, "role" | "refuses"> & Partial<Pick<Action<F, unknown>, "refuses">>,
): Action<F, unknown> {
  return { role: "viewer", refuses: [], ...parts };
}

/** For filters. The pattern excludes NUL, which PostgreSQL refuses in a query. */
function textThatIs(what: string, about: string): Field<string> {
  return text(rules.note, { rule: `${what}, ${rules.note.rule}`, about });
}

function ifTrue(option: string, about: string) {
  return optionally.choice(["true"], { rule: '"true"', option, about });
}

const oldestOrNewest = choice(["oldest", "newest"], { rule: '"oldest" (default) or "newest"' });
const ofOneAccount = { ...pageFields, account: optional(accountId) };

export const listAccounts = view({
  id: "listAccounts",
  title: "List accounts with their balances",
  help:
    "`search` finds accounts whose id begins with the text, or whose owner, e-mail and external id have words that begin with its words, without accents. `external_id` finds one account. " +
    "`low_balance` finds accounts with less than one credit, or less than a tenth of the credits of both windows, additional credits included. " +
    "`not_come` finds accounts with an invitation that nobody has used, without closed ones. " +
    "`order=remaining` compares the credits of all buckets. A window that has ended counts as full.",
  http: "GET /admin/accounts",
  cli: "account list",
  examples: [
    "account list --search ada",
    "account list --low-balance --order remaining",
    "account list --plan starter --order created --descending --limit 20",
  ],
  input: {
    ...pageFields,
    search: optionally.text(rules.contact, {
      about: "only accounts whose id, owner, e-mail or external id begins with this",
    }),
    external_id: optionally.text(rules.contact, { about: "only the account with this external id" }),
    plan: optionally.text(rules.name, { about: "only accounts on this plan" }),
    state: optionally.choice(accountStates, {
      rule: '"active", "suspended" or "closed"',
      about: "only accounts in this state",
    }),
    low_balance: ifTrue(
      "--low-balance",
      "only accounts with less than one credit, or less than a tenth of the credits of both windows",
    ),
    not_come: ifTrue("--not-come", "only accounts whose invited person has not come yet"),
    order: optionally.choice(accountOrders, {
      rule: '"id" (default), "created", "plan", "additional" or "remaining"',
      about: "order of the list (default: id)",
    }),
    direction: optionally.choice(["asc", "desc"], {
      rule: '"asc" (default) or "desc"',
      option: "--descending",
      about: "the greatest first",
    }),
  },
  refuses: ["list_too_slow"],
});

export const showAccount = view({
  id: "showAccount",
  title: "Show one account",
  http: "GET /admin/accounts/{account}",
  input: { account: accountId },
});

export const listPeople = view({
  id: "listPeople",
  title: "List people who sign in or are behind a front end, in the order of their ids",
  help: "`role` is what the present configuration gives to the person: it needs the rule that gave it at the last sign-in, and lapses `sign_in.lapse` after `role_matched_at`. `account_by` is `rule`, `email`, or the operator who linked the account.",
  http: "GET /admin/people",
  cli: "person list",
  examples: ["person list --search muller", "person list --account ada"],
  input: {
    ...pageFields,
    account: optional({ ...accountId, option: "--account <account>", about: "only people of this account" }),
    search: optionally.text(rules.contact, {
      about: "only people whose id, name or e-mail begins with this",
    }),
  },
});

export const listLinks = view({
  id: "listLinks",
  title: "List links by which many people join, the newest first",
  http: "GET /admin/links",
  cli: "link list",
  input: pageFields,
});

export const showLink = view({
  id: "showLink",
  title: "Show a link with its seats, and its accounts in the order of their ids",
  help: "`waiting` counts mails that were not used yet, `used` accounts with a finished request. People have typed the names themselves.",
  http: "GET /admin/links/{link}",
  cli: "link show <link>",
  input: { link: linkId, ...pageOptions },
  refuses: ["link_not_found"],
});

export const listKeys = view({
  id: "listKeys",
  title: "List the keys of an account, with revoked and expired ones, in the order of their creation",
  http: "GET /admin/accounts/{account}/keys",
  input: { account: accountId, ...pageFields },
});

export const listAllKeys = view({
  id: "listAllKeys",
  title: "List the keys of all accounts, with revoked and expired ones, in the order of their creation",
  http: "GET /admin/keys",
  input: pageFields,
});

export const showKey = view({
  id: "showKey",
  title: "Show one key, without its secret",
  http: "GET /admin/keys/{key}",
  cli: "key show <key>",
  input: { key: keyId },
});

/** The action checks its length: a message about this field must not quote it. */
const secret: Field<string> = { kind: "text", rule: "the whole secret of a key" };

export const lookUpKey = view({
  id: "lookUpKey",
  title: "Find the key and the account of a secret",
  help: "Finds revoked and expired keys too, and the secret before the last rotation. The secret is not logged, and no answer repeats it.",
  http: "POST /admin/keys/lookup",
  input: { key: secret },
  refuses: ["key_not_found"],
});

export const showBalance = view({
  id: "showBalance",
  title: "Show the balance of an account, as GET /v1/balance does",
  http: "GET /admin/accounts/{account}/balance",
  input: { account: accountId },
});

const kinds = listedKinds.join("|");

export const journalKinds: rules.TextField = {
  pattern: new RegExp(`^(?:${kinds})(?:,(?:${kinds}))*$`),
  rule: `one or more kinds of entries with commas between them: ${listedKinds.join(", ")}`,
};

export const listJournal = view({
  id: "listJournal",
  title: "List the changes of an account's buckets",
  help: "All of them, oldest first, unless `kind` and `order` say otherwise. `kind=payment,refund` lists the changes of purchased credits.",
  http: "GET /admin/accounts/{account}/journal",
  cli: "account journal <account>",
  examples: [
    "account journal ada --kind payment,refund,promotion",
    "account journal ada --oldest --limit 1000000 --json > journal.json",
  ],
  input: {
    account: accountId,
    ...pageFields,
    kind: optionally.text(journalKinds, {
      option: "--kind <kinds>",
      about: "only these kinds of entries, with commas between them",
    }),
    order: optional(oldestOrNewest),
  },
  refuses: ["list_too_slow"],
});

/** Returns the kinds that a text names. */
export function journalKindsIn(text: string): ListedKind[] {
  const names = text.split(",");
  return listedKinds.filter((kind) => names.includes(kind));
}

export const listPayments = view({
  id: "listPayments",
  title: "List the payments of an account, newest first, with what was spent and refunded of each",
  http: "GET /admin/accounts/{account}/payments",
  cli: "credits payments <account>",
  examples: ["credits payments ada"],
  input: { account: accountId, ...pageFields },
  refuses: ["list_too_slow"],
});

const format = optionally.choice(["json", "csv"], { rule: '"json" or "csv"' });

export const reportPayments = view({
  id: "reportPayments",
  title: "Show for a month what was added, spent and refunded of each payment, and what is left",
  help: "Payments of which something was left, or that were made in the month, by id. `over`: the month has ended, so that the figures stay. With `format=csv` or `accept: text/csv`, the payments come as CSV.",
  http: "GET /admin/payments/report",
  input: {
    month: text(rules.note, {
      rule: 'a year and a month, such as "2027-01"',
      option: "--month <month>",
      about: "such as 2027-01, in the time zone of the configuration",
    }),
    format,
  },
  refuses: ["missing_required_parameter"],
  csv: true,
});

const filters = {
  model: optional(textThatIs("the id of a model", "only this model")),
  key: optional(textThatIs("the id of a key", "only this key, as key list shows it")),
};

/** Of a list of receipts. A day begins in the time zone of the configuration. */
export const receiptFilters = {
  from: optionally.moment({ day: "start" }),
  to: optionally.moment({ day: "start" }),
  ...filters,
};

export const listUsage = view({
  id: "listUsage",
  title: "List receipts of finished requests, in the order of account and journal",
  help: "With `order=newest` the newest receipt of an account comes first; the list must name an account or a key then. `from` is inclusive, `to` exclusive. With `format=csv` or `accept: text/csv`, all receipts come as one CSV; `limit` is not accepted then.",
  http: "GET /admin/usage",
  input: {
    ...ofOneAccount,
    ...receiptFilters,
    request_id: optional(
      textThatIs("the x-request-id of an answer", "only this request: the x-request-id of its answer"),
    ),
    order: optional(oldestOrNewest),
    format,
  },
  refuses: ["account_not_found", "list_too_slow"],
  csv: true,
  check({ order, account, key }) {
    if (order !== "newest" || account !== undefined || key !== undefined) return null;
    const message =
      "order=newest needs account or key: receipts of all accounts are in the order of account and journal.";
    return { param: "order", message };
  },
});

/** A day, or the time of its start. */
const day: Field<string> = { kind: "text", rule: momentRule };

function sumsOf<const By extends readonly string[]>(by: By, rule: string) {
  return {
    by: optionally.choice(by, { rule }),
    from: optional(day),
    to: optional(day),
    ...filters,
    order: optionally.choice(["name", "cost"], { rule: '"name" or "cost"' }),
    ...pageFields,
    format,
  };
}

/** Sums of operators, and those of the holders of keys. */
export const sumsOfAll = sumsOf(usageGroups, '"day" (default), "model", "key" or "account"');
export const sumsOfHolder = sumsOf(["day", "model", "key"], '"day" (default), "model" or "key"');

export const sumUsage = view({
  id: "sumUsage",
  title: "Sum usage by day, model, key or account",
  help:
    "`from` is inclusive, `to` exclusive; both are days in the `timezone` of the configuration. The total is that of all rows, not of the page. " +
    "A day is final five minutes after its end; `final_until` is the first day that is not. " +
    "With `order=cost` the rows with the highest cost come first, and there is one page. " +
    "With `format=csv` or `accept: text/csv`, all rows come as one CSV; `limit` and `after` are not accepted then.",
  http: "GET /admin/usage/sums",
  input: { ...sumsOfAll, account: optional(accountId) },
  refuses: ["account_not_found", "list_too_slow"],
  csv: true,
});

/** Hours that a graph shows, if a request names no number. */
export const graphHoursDefault = 24;

export const hoursFields = {
  hours: optionally.number({ min: 1, max: graphHoursMax }, "a whole number of hours", {
    note: ` (default ${graphHoursDefault})`,
  }),
  ...filters,
  by: optionally.choice(["hour", "model"], { rule: '"hour" (default) or "model"' }),
};

export const showUsageHours = view({
  id: "showUsageHours",
  title: "Sum the usage of the last hours, by hour",
  help: "The last row can be the present hour, which is not over. Hours without a finished request have no row. With `by=model`, each model of an hour has a row of its own.",
  http: "GET /admin/usage/hours",
  input: { ...hoursFields, account: optional(accountId) },
  refuses: ["account_not_found", "list_too_slow"],
});

export const listPlans = view({
  id: "listPlans",
  title: "List the plans of the database with their versions and numbers of accounts",
  help: "Plans of the current section in its order, then retired plans by name. Accounts keep a retired plan, and no other account can be put on it. `configuration` compares the plans of this node's configuration, as the node last read it, with the database.",
  http: "GET /admin/plans",
  input: pageFields,
});

export const listRequests = view({
  id: "listRequests",
  title: "List the chat requests that this process answers now, oldest first",
  help: "`GET /admin/holds` lists the requests of all processes with their held credits, as of their last checkpoint.",
  http: "GET /admin/requests",
  input: ofOneAccount,
});

export const listHolds = view({
  id: "listHolds",
  title: "List running requests and the credits that they hold, in the order of account and request id",
  help: "A hold whose `expires_at` has passed belongs to a process that died. It is charged by its last checkpoint within seconds.",
  http: "GET /admin/holds",
  cli: "requests list [account]",
  examples: ["requests list", "requests list ada"],
  input: ofOneAccount,
  refuses: ["account_not_found", "list_too_slow"],
});

export const listNodes = view({
  id: "listNodes",
  title: "List the live processes on this database, in the order of their start",
  help: "As this process last saw them, a few seconds ago. `differs` lists the settings that affect credits and differ from this process.",
  http: "GET /admin/nodes",
  input: pageFields,
});

export const listModels = view({
  id: "listModels",
  title: "List models with their state, price, load, servers and speed",
  help: "`last_day` counts the requests of this process since its start, at most of 24 hours. `servers` is null for models of the embedded engine.",
  http: "GET /admin/models",
  input: pageFields,
});

export const listErrors = view({
  id: "listErrors",
  title: "List the last warnings and errors of this process, newest first",
  help: "Lines that repeat are one row with their number. A restart begins anew; the log has all of them.",
  http: "GET /admin/errors",
  input: pageFields,
});

export const listRefusals = view({
  id: "listRefusals",
  title: "List the last chat requests of an account that ended with an error, newest first",
  help: "At most 50, of this process since its start.",
  http: "GET /admin/accounts/{account}/refusals",
  input: { account: accountId, ...pageFields },
});

export const showAccountLive = view({
  id: "showAccountLive",
  title: "Show the balance of an account and its running requests",
  help: "Does not prolong a session.",
  http: "GET /admin/accounts/{account}/live",
  input: { account: accountId },
});

export const listJobs = view({
  id: "listJobs",
  title: "List the regular work of this process and whether it succeeds",
  help: "`since` is the time at which the state began. `last_error` is kept after a success. A restart begins anew.",
  http: "GET /admin/jobs",
  input: pageFields,
});

const nothing: Fields = {};

export const showTime = view({
  id: "showTime",
  title: "Show the time of the ledger, and the time zone of days",
  help: "`ledger_at` is the time of windows, ends and dates.",
  http: "GET /admin/time",
  input: nothing,
});

export const showAudit = view({
  id: "showAudit",
  title: "Show the last recorded audit",
  help: "The command `audit --record` writes its result into the database, and every process shows it. `last` is null before the first one. `first_problem` is the first broken rule; the output of the command has all of them with the rows at fault.",
  http: "GET /admin/audit",
  input: nothing,
});

export const listOperatorKeys = view({
  id: "listOperatorKeys",
  title: "List operator keys with ended ones, in the order of their creation",
  help: "An owner sees all of them, others see their own.",
  http: "GET /admin/operator-keys",
  cli: "operator list",
  input: pageFields,
});

export const listChanges = view({
  id: "listChanges",
  title: "List all changes with who made them, newest first",
  help: "Over all accounts and the service: journals without windows, plans, the clock, contacts, operator keys, people and reloads. `before` and `after` have the values that a change has replaced and set. `by` finds the changes of one actor. A stopped request names its operator in its receipt.",
  http: "GET /admin/log",
  cli: "log",
  examples: ["log --by operator_key:opkey_1f2e3d4c5b6a7988", "log --account ada --from 2027-01-01"],
  input: {
    ...pageOptions,
    by: optionally.text(rules.note, {
      rule: `who made the changes, ${rules.note.rule}`,
      label: "By",
      option: "--by <actor>",
      about: "only the changes of this actor, as the list shows it",
    }),
    kind: optionally.choice(changeKinds, {
      rule: changeKinds.join(", "),
      label: "Kind",
      option: "--kind <kind>",
      about: "only changes of this kind",
    }),
    account: optional({ ...accountId, option: "--account <account>", about: "only those of this account" }),
    from: optionally.moment({
      day: "start",
      isTyped: true,
      label: "From",
      option: "--from <time>",
      about: "since this day or time",
    }),
    to: optionally.moment({
      day: "start",
      isTyped: true,
      label: "To",
      option: "--to <time>",
      about: "before this day or time",
    }),
  },
  refuses: ["list_too_slow"],
});

export const listEndpoints = view({
  id: "listEndpoints",
  title: "List the receivers of events, with what waits for each of them",
  http: "GET /admin/events/endpoints",
  cli: "events endpoints",
  input: { ...pageFields },
});

export const listDeliveries = view({
  id: "listDeliveries",
  title: "List what became of events at an endpoint, newest first",
  help: "With the status of the last answer and the beginning of its body. Events are kept for 30 days.",
  http: "GET /admin/events/endpoints/{endpoint}/deliveries",
  cli: "events deliveries <endpoint>",
  examples: ["events deliveries billing", "events deliveries billing --state dead"],
  input: {
    endpoint: eventEndpoint,
    ...pageFields,
    account: optional(accountId),
    state: optionally.choice(deliveryStates, { rule: '"pending", "delivered", "skipped" or "dead"' }),
  },
  refuses: ["endpoint_not_found", "list_too_slow"],
});
