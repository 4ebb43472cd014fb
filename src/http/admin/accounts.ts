/**
 * `/admin/accounts`: opening, importing, listing and showing accounts, and changing their plans,
 * states and contacts.
 */
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
import * as fields from "../../accounts/fields.ts";
import { closed, orNull } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import {
  accountObject,
  importObject,
  listedAccountObject,
  previewObject,
} from "../../accounts/operator-objects.ts";
import { invalidValue, momentNamed } from "../../accounts/refusals.ts";
import { invariant, type Refusal } from "../../errors.ts";
import { accountStates } from "../../ledger/rows.ts";
import { defined } from "../../objects.ts";
import type { Contact } from "../../store/contacts.ts";
import { type AccountOrder, accountOrders } from "../../store/store.ts";
import { type ApiApp, route } from "../api/app.ts";
import { pageOf, placeCursor, placeIn, seqIn } from "../api/paging.ts";
import * as schema from "../api/schemas.ts";

const changeTime = Type.Optional(
  Type.Enum(["refresh", "now", "new_window"], { description: '"refresh" (default), "now" or "new_window"' }),
);
/** Accounts of one request. With ordinary texts they have about 3 MiB. */
const importedAccountsMax = 10_000;
const importBodyBytesMax = 4 * 1024 * 1024;
const toState = { active: "resume", suspended: "suspend", closed: "close" } as const;

const contactFields = {
  owner: Type.Optional(orNull(schema.contactText)),
  email: Type.Optional(orNull(schema.email)),
  note: Type.Optional(orNull(schema.remark)),
  external_id: Type.Optional(orNull(schema.id)),
};

/** The import checks the values, so that one answer has all faults. */
const importedAccount = closed({
  id: ofImport(fields.name),
  plan: Type.Optional(ofImport(fields.name)),
  owner: Type.Optional(orNull(ofImport(fields.contact))),
  email: Type.Optional(orNull(ofImport(fields.email))),
  note: Type.Optional(orNull(ofImport(fields.remark))),
  external_id: Type.Optional(orNull(ofImport(fields.contact))),
  base_left: Type.Optional(Type.Number({ description: leftRule })),
  base_start: Type.Optional(ofImport({ rule: startRule })),
  overage_left: Type.Optional(Type.Number({ description: leftRule })),
  overage_start: Type.Optional(ofImport({ rule: startRule })),
  additional: Type.Optional(Type.Number({ description: additionalRule })),
  payment: Type.Optional(ofImport(fields.note)),
});

function ofImport({ rule }: Pick<fields.TextField, "rule">) {
  return Type.String({ description: rule });
}

export function accountRoutes(app: ApiApp, actions: OperatorActions): void {
  app.post(
    "/admin/accounts",
    route("openAccount", {
      summary: "Open an account",
      description:
        "A repetition with the same plan returns 200 and the present account unchanged, even if its plan has changed since.",
      body: closed({ id: schema.accountName, plan: schema.planName, ...contactFields }),
      response: { 200: accountObject.schema, 201: accountObject.schema },
      refusals: ["account_exists", "external_id_used"],
    }),
    async ({ body }, reply) => {
      const { id, plan } = body;
      const { account, isNew } = await actions.openAccount(id, plan, contactIn(body));
      return reply.code(isNew ? 201 : 200).send(accountObject.of(account));
    },
  );

  app.get(
    "/admin/accounts",
    route("listAccounts", {
      summary: "List accounts with their balances",
      description:
        "`search` finds accounts whose id, e-mail or external id begins with the text, or whose owner contains it, in either case of a to z. `external_id` finds one account. " +
        "`near_exhaustion` finds accounts with less than one credit, or less than a tenth of the credits of both windows, purchased credits included. " +
        "`order=remaining` compares the credits of all buckets. A window that has ended counts as full.",
      querystring: closed({
        ...schema.pageQuery,
        external_id: Type.Optional(schema.contactText),
        search: Type.Optional(schema.contactText),
        plan: Type.Optional(schema.accountName),
        state: Type.Optional(
          Type.Enum([...accountStates], { description: '"active", "suspended" or "closed"' }),
        ),
        near_exhaustion: Type.Optional(Type.Enum(["true"], { description: '"true"' })),
        order: Type.Optional(
          Type.Enum([...accountOrders], {
            description: '"id" (default), "created", "plan", "additional" or "remaining"',
          }),
        ),
        direction: Type.Optional(Type.Enum(["asc", "desc"], { description: '"asc" (default) or "desc"' })),
      }),
      response: { 200: schema.pageOf(listedAccountObject.schema) },
      refusals: ["list_too_slow"],
    }),
    async ({ query }) => {
      const { limit, search, external_id: externalId, plan, state, order = "id", direction } = query;
      const isNearExhaustion = query.near_exhaustion === "true" || undefined;
      const filters = { search, externalId, plan, state, isNearExhaustion };
      const descending = direction === "desc" || undefined;
      const place = accountPlaceIn(query.after, order);
      const inOrder = order === "id" ? { descending } : { order, descending };
      return pageOf(
        limit,
        (rows) => actions.accounts({ ...filters, ...inOrder, ...place, limit: rows }),
        listedAccountObject.of,
        (row) => (order === "id" ? row.id : placeCursor(row.id, row.orderValue)),
      );
    },
  );

  app.get(
    "/admin/accounts/:account",
    route("showAccount", {
      summary: "Show one account",
      response: { 200: accountObject.schema },
      ...schema.ofAccount(),
    }),
    async ({ params: { account } }) => accountObject.of(await actions.account(account)),
  );

  app.patch(
    "/admin/accounts/:account",
    route("changePlan", {
      summary: "Change the plan of an account",
      description:
        "`at` is `refresh` (the default): at the end of the base window, shown as `next_plan`. Or it is `now`, which is refused if the plan has other windows, or `new_window`: now, with a new window for each bucket that has another one. A change to the present plan cancels a scheduled change. Each operation id takes effect once.",
      body: closed({ operation_id: schema.operationId, plan: schema.planName, at: changeTime }),
      response: { 200: accountObject.schema },
      ...schema.ofAccount("account_closed", "operation_differs", "window_differs"),
    }),
    async ({ params: { account }, body: { operation_id, plan, at } }) =>
      accountObject.of(await actions.changePlan(account, operation_id, plan, at)),
  );

  app.patch(
    "/admin/accounts/:account/contact",
    route("setContact", {
      summary: "Set the owner, e-mail, note or external id of an account",
      description: "Fields that are missing stay. null removes a field. A repetition changes nothing.",
      body: closed(contactFields),
      response: { 200: accountObject.schema },
      ...schema.ofAccount("external_id_used"),
    }),
    async ({ params: { account }, body }) =>
      accountObject.of(await actions.setContact(account, contactIn(body))),
  );

  app.post(
    "/admin/accounts/import",
    route(
      "importAccounts",
      {
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
    async ({ body: { accounts, dry_run = false } }) => {
      const imported = accounts.map((each) => ({
        ...{ id: each.id, plan: each.plan ?? null, contact: contactIn(each) },
        balances: balancesIn(each),
      }));
      const result = await actions.importAccounts(imported, { dryRun: dry_run, issueKeys: null });
      if (result.kind === "done") return importObject.of(result);
      throw result.kind === "failed" ? result.error : refusalOfImport(result);
    },
  );

  app.post(
    "/admin/accounts/:account/plan-preview",
    route("previewPlan", {
      summary: "Show what a change of the plan would do",
      description:
        "Changes nothing. `after` is the balance at `effective_at`, if nothing is spent until then. For `refresh` that is the end of the base window.",
      body: closed({ plan: schema.planName, at: changeTime }),
      response: { 200: previewObject.schema },
      ...schema.ofAccount("account_closed", "window_differs"),
    }),
    async ({ params: { account }, body: { plan, at } }) =>
      previewObject.of(await actions.previewPlan(account, plan, at)),
  );

  app.post(
    "/admin/accounts/:account/state",
    route("changeState", {
      summary: "Suspend, resume or close an account",
      description:
        "A `suspended` account gets no new requests answered; running requests finish, and windows go on. `active` ends that. `closed` is final: base and overage credits lapse, additional credits stay, and payments can be refunded. Each operation id takes effect once.",
      body: closed({
        operation_id: schema.operationId,
        state: Type.Enum([...accountStates], { description: '"active", "suspended" or "closed"' }),
      }),
      response: { 200: accountObject.schema },
      ...schema.ofAccount("account_closed", "operation_differs"),
    }),
    async ({ params: { account }, body: { operation_id, state } }) =>
      accountObject.of(await actions.changeState(account, operation_id, { kind: toState[state] })),
  );

  app.post(
    "/admin/accounts/:account/end",
    route("setEnd", {
      summary: "Set the time at which an account closes, or remove it",
      description: "A time that has passed closes the account now. Each operation id takes effect once.",
      body: closed({ operation_id: schema.operationId, ends_at: orNull(schema.moment) }),
      response: { 200: accountObject.schema },
      ...schema.ofAccount("account_closed", "operation_differs"),
    }),
    async ({ params: { account }, body: { operation_id, ends_at } }) => {
      const endsMs = ends_at === null ? null : momentNamed("ends_at", ends_at);
      invariant(endsMs !== undefined, "the time is required");
      return accountObject.of(await actions.changeState(account, operation_id, { kind: "end", endsMs }));
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

/** Reads the cursor of a list of accounts. */
function accountPlaceIn(cursor: string | undefined, order: AccountOrder) {
  if (order === "id" || cursor === undefined) return { after: cursor };
  const place = placeIn(cursor);
  if (order === "plan") return { after: place?.account, afterValue: place?.rest };
  return { after: place?.account, afterValue: place && seqIn(place.rest) };
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
