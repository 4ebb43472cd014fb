/** How the service does what operators do with accounts. */
import { invitationObject } from "../accounts/invitations.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import {
  accountObject,
  findingObject,
  listedAccountObject,
  previewObject,
} from "../accounts/operator-objects.ts";
import { shownPerson } from "../accounts/person-objects.ts";
import { factFields } from "../ledger/fact-values.ts";
import type { OpenOperation, StateOperation } from "../ledger/operations.ts";
import { previewPlan as planPreview } from "../ledger/preview.ts";
import { refusalOf } from "../ledger/refusals.ts";
import { emptyAccount } from "../ledger/unit-of-work.ts";
import { defined } from "../objects.ts";
import { type AccountDraft, type ListedAccount, noContact } from "../store/contacts.ts";
import type { AccountOrder, ListedEntry } from "../store/store.ts";
import { microOf } from "../units.ts";
import {
  changePlan,
  changeState,
  inviteAccount,
  openAccount,
  previewPlan,
  setContact,
  setEnd,
} from "./accounts.ts";
import { bindFor } from "./bind.ts";
import { personEmail, personName } from "./columns.ts";
import { Created } from "./created.ts";
import { pageOf, pageSchema, placeCursor, placeIn, seqIn } from "./pages.ts";
import { search } from "./search.ts";
import { listAccounts, showAccount } from "./views.ts";

const bind = bindFor<OperatorActions>();
const toState = { active: "resume", suspended: "suspend", closed: "close" } as const;

/** As forms and lists of accounts, without blanks at the ends of the owner. */
function contactIn<Given extends { owner?: string | null | undefined }>(given: Given) {
  return defined({ ...given, owner: given.owner?.trim() ?? given.owner });
}

export const accountActions = {
  openAccount: bind(openAccount, accountObject.schema, async (operator, input) => {
    const { id, plan, credits, paymentId: payment = null, dryRun = false, ...rest } = input;
    const additional = credits === undefined ? undefined : { amountMicro: microOf(credits), payment };
    const contact = contactIn(rest);
    const isNew = await openDraft(operator, { id, plan, contact, additional }, dryRun);
    if (isNew && dryRun) {
      const { atMs } = operator.store.times();
      const row = { ...emptyAccount, id, plan, atMs, createdMs: atMs };
      return accountObject.of({ ...row, contact: { ...noContact, ...contact } });
    }
    const opened = accountObject.of(await operator.account(id));
    if (isNew) return new Created(opened);
    requireSameOpening(await operator.store.journal(id, { limit: 4 }), { id, plan, additional });
    return opened;
  }),
  listAccounts: bind(listAccounts, pageSchema(listedAccountObject.schema), async (actions, input) => {
    const { limit, after, direction, lowBalance, notCome, order = "id", ...filters } = input;
    const query = {
      ...filters,
      ...listPlaceOf(after, order),
      hasLowBalance: lowBalance && (true as const),
      hasNotCome: notCome && (true as const),
      ...(order === "id" ? {} : { order }),
      descending: direction === "desc" || undefined,
    };
    return await pageOf(
      limit,
      (rows) => actions.accounts({ ...query, limit: rows }),
      listedAccountObject.of,
      (row) => (order === "id" ? row.id : placeCursor(row.id, row.orderValue)),
    );
  }),
  search: bind(search, pageSchema(findingObject.schema), async (operator, { text, limit = 5 }) => {
    const found = await operator.store.find({ text: text.trim(), limit });
    const people = await operator.store.people(
      found.flatMap(({ kind, id }) => (kind === "person" ? id : [])),
    );
    const shown = new Map(people.map((person) => [person.id, shownPerson(operator, person)]));
    const data = found.map(findingObject.of).map((row) => {
      const person = row.kind === "person" ? shown.get(row.id) : undefined;
      return person === undefined ? row : { ...row, name: personName(person), email: personEmail(person) };
    });
    return { data, next: null };
  }),
  showAccount: bind(showAccount, accountObject.schema, async (actions, { account }) =>
    accountObject.of(await actions.account(account)),
  ),
  changePlan: bind(changePlan, accountObject.schema, async (operator, input) => {
    const { account, operationId: op, plan, at = "refresh" } = input;
    const { ledger, by } = operator;
    const outcome = await ledger.apply({ kind: "plan", account, op, plan, at, by });
    if (outcome.kind !== "changed") throw refusalOf(outcome);
    return accountObject.of(await operator.account(account));
  }),
  setContact: bind(setContact, accountObject.schema, async (operator, { account, ...rest }) => {
    const contact = contactIn(rest);
    const options = { by: operator.by, dryRun: false };
    const outcome = await operator.store.putAccount({ id: account, plan: null, contact }, options);
    if (outcome.kind !== "exists" && outcome.kind !== "opened") throw refusalOf(outcome);
    return accountObject.of(await operator.account(account));
  }),
  previewPlan: bind(
    previewPlan,
    previewObject.schema,
    async (operator, { account, plan, at = "refresh" }) => {
      const preview = planPreview(await operator.snapshot(account), { plan, at });
      if (preview.kind !== "preview") throw refusalOf(preview);
      return previewObject.of({ ...preview, account });
    },
  ),
  inviteAccount: bind(inviteAccount, invitationObject.schema, async (operator, { account, email, send }) => {
    const { invitations, actor } = operator;
    const options = { email, isMailed: send === "mail" };
    return new Created(invitationObject.of(await invitations.invite(account, options, actor)));
  }),
  changeState: bind(changeState, accountObject.schema, async (operator, { account, operationId, state }) =>
    accountObject.of(await applyState(operator, account, operationId, { kind: toState[state] })),
  ),
  setEnd: bind(setEnd, accountObject.schema, async (operator, { account, operationId, endsMs }) =>
    accountObject.of(await applyState(operator, account, operationId, { kind: "end", endsMs })),
  ),
};

/**
 * Refuses an opening with another plan or other credits than the account was opened with. The
 * first journal entry has its plan, and the one after the two windows its additional credits.
 */
function requireSameOpening(
  [opening, , , fourth]: readonly ListedEntry[],
  { id, plan, additional }: Pick<OpenOperation, "plan" | "additional"> & { id: string },
): void {
  const { plan: first } = factFields(opening?.after ?? null);
  if (first !== plan) throw refusalOf({ kind: "account_exists", account: id, how: `on plan ${first}` });
  if (additional === undefined) return;
  const { amountMicro, payment } = additional;
  const isPayment = fourth?.kind === "payment" && fourth.subject === payment;
  const isPromotion = fourth?.kind === "promotion" && fourth.op === null && payment === null;
  if ((isPayment || isPromotion) && fourth.amountMicro === amountMicro) return;
  const how = "without these credits. Nothing has changed. Add them as a payment or a promotion";
  throw refusalOf({ kind: "account_exists", account: id, how });
}

/** Returns whether the account is new. */
async function openDraft(
  { ledger, store, by }: OperatorActions,
  draft: AccountDraft & { plan: string },
  dryRun: boolean,
): Promise<boolean> {
  const { id, plan, contact, additional } = draft;
  // Only the ledger repeats an operation while the database is away.
  const isPlain = Object.keys(contact).length === 0 && !dryRun;
  const outcome = isPlain
    ? await ledger.apply({ kind: "open", account: id, plan, additional, by })
    : await store.putAccount(draft, { by, dryRun });
  if (outcome.kind === "opened" || outcome.kind === "exists") return outcome.kind === "opened";
  throw refusalOf(outcome);
}

async function applyState(
  operator: OperatorActions,
  account: string,
  op: string,
  to: StateOperation["to"],
): Promise<ListedAccount> {
  const operation = { kind: "state", account, op, to, by: operator.by } as const;
  const outcome = await operator.ledger.apply(operation);
  if (outcome.kind !== "changed") throw refusalOf(outcome);
  return await operator.account(account);
}

/** Reads the cursor of a list of accounts. */
function listPlaceOf(cursor: string | undefined, order: AccountOrder) {
  if (order === "id" || cursor === undefined) return { after: cursor };
  const place = placeIn(cursor);
  if (order === "plan") return { after: place?.account, afterValue: place?.rest };
  return { after: place?.account, afterValue: place && seqIn(place.rest) };
}
