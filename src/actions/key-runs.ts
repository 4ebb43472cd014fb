/** How the service does what operators do with keys. */
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { keyObject, keyOfSecretObject, newKeyObject } from "../accounts/operator-objects.ts";
import { requirePlan, requireRole } from "../accounts/refusals.ts";
import type { Role } from "../actors.ts";
import { offeredPlans } from "../ledger/plan.ts";
import type { KeyRow } from "../ledger/rows.ts";
import { type ActionTexts, neededRole } from "./action.ts";
import { bindFor } from "./bind.ts";
import { Created } from "./created.ts";
import { changeKey, makeKey, revokeKey, rotateKey } from "./keys.ts";
import { pageOf, pageSchema, wrongCursor } from "./pages.ts";
import { listAllKeys, listKeys, lookUpKey, showKey } from "./views.ts";

const bind = bindFor<OperatorActions>();

function requireFor({ actsFor }: KeyRow, role: Role, action: ActionTexts): void {
  requireRole(role, neededRole(action, { acts_for: actsFor }));
}

/** `list`: keys after one, at most so many. Null: no key has that id, which is the cursor. */
export function pageOfKeys(
  { limit, after }: { limit?: number | undefined; after?: string | undefined },
  list: (after: string | undefined, most: number) => Promise<KeyRow[] | null>,
) {
  const read = async (most: number) => {
    const rows = await list(after, most);
    if (rows === null) throw wrongCursor();
    return rows;
  };
  return pageOf(limit, read, keyObject.of, ({ id }) => id);
}

export const keyActions = {
  makeKey: bind(
    makeKey,
    newKeyObject.schema,
    async ({ keys, store }, { account, operationId, ...settings }) => {
      const plan = settings.actsFor?.plan;
      if (plan !== undefined) requirePlan(offeredPlans(await store.plans()), plan, "acts_for.plan");
      const { key, row } = await keys.issueOnce(account, operationId, settings);
      const made = newKeyObject.of({ key, ...row });
      return key === null ? made : new Created(made);
    },
  ),
  listKeys: bind(listKeys, pageSchema(keyObject.schema), async ({ keys }, { account, ...page }) =>
    pageOfKeys(page, (after, most) => keys.list(after, most, account)),
  ),
  listAllKeys: bind(listAllKeys, pageSchema(keyObject.schema), async ({ keys }, page) =>
    pageOfKeys(page, (after, most) => keys.list(after, most)),
  ),
  showKey: bind(showKey, keyObject.schema, async ({ keys }, { key }) => keyObject.of(await keys.find(key))),
  lookUpKey: bind(lookUpKey, keyOfSecretObject.schema, async ({ keys }, { key }) =>
    keyOfSecretObject.of(await keys.lookUp(key)),
  ),
  changeKey: bind(changeKey, keyObject.schema, async ({ keys, role }, { key, operationId, ...change }) => {
    requireFor(await keys.find(key), role, changeKey);
    return keyObject.of(await keys.change(key, operationId, change));
  }),
  rotateKey: bind(rotateKey, newKeyObject.schema, async ({ keys, role }, { key, operationId, overlap }) => {
    requireFor(await keys.find(key), role, rotateKey);
    const rotated = await keys.rotate(key, operationId, overlap);
    return newKeyObject.of({ key: rotated.key, ...rotated.row });
  }),
  revokeKey: bind(revokeKey, keyObject.schema, async ({ keys }, { key }) =>
    keyObject.of((await keys.revoke(key)).row),
  ),
};
