/** How the service does what operators do with accounts. */
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { accountObject, listedAccountObject, previewObject } from "../accounts/operator-objects.ts";
import { defined } from "../objects.ts";
import type { AccountOrder } from "../store/store.ts";
import { changePlan, changeState, openAccount, previewPlan, setContact, setEnd } from "./accounts.ts";
import { bindFor } from "./bind.ts";
import { Created } from "./created.ts";
import { pageOf, pageSchema, placeCursor, placeIn, seqIn } from "./pages.ts";
import { listAccounts, showAccount } from "./views.ts";

const bind = bindFor<OperatorActions>();
const toState = { active: "resume", suspended: "suspend", closed: "close" } as const;

export const accountActions = {
  openAccount: bind(openAccount, accountObject.schema, async (actions, { id, plan, ...contact }) => {
    const { account, isNew } = await actions.openAccount(id, plan, defined(contact));
    const opened = accountObject.of(account);
    return isNew ? new Created(opened) : opened;
  }),
  listAccounts: bind(listAccounts, pageSchema(listedAccountObject.schema), async (actions, input) => {
    const { limit, after, direction, nearExhaustion, order = "id", ...filters } = input;
    const query = {
      ...{ ...filters, ...placeOf(after, order), isNearExhaustion: nearExhaustion && (true as const) },
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
  showAccount: bind(showAccount, accountObject.schema, async (actions, { account }) =>
    accountObject.of(await actions.account(account)),
  ),
  changePlan: bind(changePlan, accountObject.schema, async (actions, { account, operationId, plan, at }) =>
    accountObject.of(await actions.changePlan(account, operationId, plan, at)),
  ),
  setContact: bind(setContact, accountObject.schema, async (actions, { account, ...contact }) =>
    accountObject.of(await actions.setContact(account, defined(contact))),
  ),
  previewPlan: bind(previewPlan, previewObject.schema, async (actions, { account, plan, at }) =>
    previewObject.of(await actions.previewPlan(account, plan, at)),
  ),
  changeState: bind(changeState, accountObject.schema, async (actions, { account, operationId, state }) =>
    accountObject.of(await actions.changeState(account, operationId, { kind: toState[state] })),
  ),
  setEnd: bind(setEnd, accountObject.schema, async (actions, { account, operationId, endsMs }) =>
    accountObject.of(await actions.changeState(account, operationId, { kind: "end", endsMs })),
  ),
};

/** Reads the cursor of a list of accounts. */
function placeOf(cursor: string | undefined, order: AccountOrder) {
  if (order === "id" || cursor === undefined) return { after: cursor };
  const place = placeIn(cursor);
  if (order === "plan") return { after: place?.account, afterValue: place?.rest };
  return { after: place?.account, afterValue: place && seqIn(place.rest) };
}
