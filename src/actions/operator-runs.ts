/** How the service does what operators do with operator keys, and lists all changes. */
import { newOperatorKeyObject, operatorKeyObject } from "../accounts/log-objects.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { type ChangePlace, sources } from "../store/change-log.ts";
import { bindFor } from "./bind.ts";
import { Created } from "./created.ts";
import { endOperatorKey, makeOperatorKey } from "./operator-keys.ts";
import { pageIn, pageOf, pageSchema, wrongCursor } from "./pages.ts";
import { toldChange, toldChangeOf, withNames } from "./told.ts";
import { listChanges, listOperatorKeys } from "./views.ts";

const bind = bindFor<OperatorActions>();

export const operatorActions = {
  listChanges: bind(
    listChanges,
    pageSchema(toldChange),
    async ({ store }, { limit, after, from, to, ...filter }) => {
      const query = { ...filter, fromMs: from, toMs: to, after: changePlaceIn(after) };
      return await pageOf(
        limit,
        async (rows) => withNames(store, await store.changes({ ...query, limit: rows })),
        toldChangeOf,
        ({ atMs, source, place }) => `${atMs} ${source} ${place}`,
      );
    },
  ),
  makeOperatorKey: bind(
    makeOperatorKey,
    newOperatorKeyObject.schema,
    async ({ operatorKeys }, { operationId, ...options }) => {
      const { key, row } = await operatorKeys.make(operationId, options);
      const made = newOperatorKeyObject.of({ key, ...row });
      return key === null ? made : new Created(made);
    },
  ),
  listOperatorKeys: bind(listOperatorKeys, pageSchema(operatorKeyObject.schema), async (actions, page) =>
    pageIn(await actions.operatorKeys.list(), page, operatorKeyObject.of),
  ),
  endOperatorKey: bind(endOperatorKey, operatorKeyObject.schema, async ({ operatorKeys }, { operatorKey }) =>
    operatorKeyObject.of(await operatorKeys.end(operatorKey)),
  ),
};

function changePlaceIn(cursor: string | undefined): ChangePlace | undefined {
  if (cursor === undefined) return undefined;
  const [, atMs, name, place] = /^(\d{1,16}) (\w+) (.+)$/.exec(cursor) ?? [];
  const source = sources.find((each) => each === name);
  if (source === undefined || place === undefined) throw wrongCursor();
  return { atMs: Number(atMs), source, place };
}
