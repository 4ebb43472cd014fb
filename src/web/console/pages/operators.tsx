/** Operator keys, and all changes with who made them. */
import { operatorKeyState } from "../../../actions/columns.ts";
import { endOperatorKey, makeOperatorKey } from "../../../actions/operator-keys.ts";
import { PageHead } from "../../shared/layout.tsx";
import { type Filter, type ListAction, ResourceList, type RowAction } from "../../shared/resource-page.tsx";
import type { Place } from "../../shared/router.tsx";
import { Secret } from "../../shared/secret.tsx";
import { columnsOf } from "../../shared/table.tsx";
import { Badge } from "../../shared/values.tsx";
import { ChangeLog } from "../change-log.tsx";
import type { Change, OperatorKey } from "../types.ts";

const keyColumns = columnsOf("operatorKey", "name role last_four ended_at made_by expires_at last_used_at", {
  ended_at: (key: OperatorKey) => <Badge text={operatorKeyState(key, Date.now())} />,
});

const make: ListAction = {
  title: "Make an operator key",
  action: makeOperatorKey,
  parts: {
    result: ({ key }: { key: string | null }) => (
      <Secret secret={key} lost="End this key in the list, and make another one." />
    ),
  },
};

const end: RowAction<OperatorKey> = {
  title: "End",
  action: endOperatorKey,
  label: ({ name }) => `End ${name}`,
  isFor: ({ ended_at: endedAt }) => endedAt === null,
  parts: ({ id, name }) => ({ target: { operator_key: id }, subject: name }),
};

const changeFilters: readonly Filter[] = [
  { name: "by", label: "By" },
  { name: "account", label: "Account" },
];

export function OperatorsPage({ place }: { place: Place }) {
  return (
    <>
      <PageHead title="Operators" />
      <ResourceList<OperatorKey>
        path="/admin/operator-keys"
        limit={500}
        caption="Operator keys"
        columns={keyColumns}
        rowActions={{ title: "End", actions: [end] }}
        actions={[make]}
        command="operator create reports"
        empty="There is no operator key. Programs that use the operator API need one."
        card="Operator keys"
      />
      <ResourceList<Change>
        place={place}
        path="/admin/log"
        limit={500}
        filters={changeFilters}
        caption="Changes, newest first"
        List={ChangeLog}
        empty="No change matches."
        card="Changes"
      />
    </>
  );
}
