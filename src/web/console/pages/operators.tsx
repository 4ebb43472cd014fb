/** Operator keys, and all changes with who made them. */
import { operatorKeyState, valuesText } from "../../../actions/columns.ts";
import { endOperatorKey, makeOperatorKey } from "../../../actions/operator-keys.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { get } from "../../shared/api.ts";
import { useAction } from "../../shared/form-dialog.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import type { Place } from "../../shared/router.tsx";
import { SearchFilter } from "../../shared/search-filter.tsx";
import { Secret } from "../../shared/secret.tsx";
import { Empty, ShownList } from "../../shared/states.tsx";
import { columnsOf, Pager, Table } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Badge } from "../../shared/values.tsx";
import { AccountLink } from "../account-link.tsx";
import type { Change, OperatorKey } from "../types.ts";

const keysMax = 500;

export function OperatorsPage({ place }: { place: Place }) {
  return (
    <>
      <PageHead title="Operators" />
      <Keys />
      <Changes place={place} />
    </>
  );
}

function Keys() {
  const keys = useLoaded("operator keys", (signal) =>
    get<Page<OperatorKey>>("/admin/operator-keys", { limit: keysMax }, signal),
  );
  const { open, show, close } = useAction<string>(keys.reload);
  const ending = keys.value?.data.find(({ id }) => open === `end ${id}`);
  return (
    <Card
      title="Operator keys"
      actions={
        <button type="button" onClick={() => show("make")}>
          Make an operator key
        </button>
      }
    >
      <ShownList
        of={keys}
        empty={<Empty>There is no operator key. Programs that use the operator API need one.</Empty>}
      >
        {({ data }) => (
          <Table
            caption="Operator keys"
            rows={data}
            columns={[
              ...columnsOf("operatorKey", "name role last_four ended_at made_by expires_at last_used_at", {
                ended_at: (key: OperatorKey) => <Badge text={operatorKeyState(key, Date.now())} />,
              }),
              {
                title: "End",
                cell: (key) =>
                  key.ended_at === null && (
                    <button
                      type="button"
                      aria-label={`End ${key.name}`}
                      onClick={() => show(`end ${key.id}`)}
                    >
                      End
                    </button>
                  ),
              },
            ]}
          />
        )}
      </ShownList>
      {open === "make" && (
        <ActionDialog
          action={makeOperatorKey}
          result={({ key }) => <Secret secret={key} lost="End this key in the list, and make another one." />}
          close={close}
        />
      )}
      {ending && (
        <ActionDialog
          action={endOperatorKey}
          target={{ operator_key: ending.id }}
          subject={ending.name}
          close={close}
        />
      )}
    </Card>
  );
}

const columns = columnsOf("change", "at kind by account subject amount_micro after", {
  account: ({ account }: Change) => account && <AccountLink id={account} />,
  after: (change: Change) => valuesText(change),
});

function Changes({ place }: { place: Place }) {
  const [by = null, account = null, after = null] = ["by", "account", "after"].map((name) =>
    place.query.get(name),
  );
  const changes = useLoaded(`changes ${by} ${account} ${after}`, (signal) =>
    get<Page<Change>>("/admin/log", { by, account, after, limit: 100 }, signal),
  );
  return (
    <Card title="Changes">
      <div class="filters">
        <SearchFilter name="by" label="By" value={by} />
        <SearchFilter name="account" label="Account" value={account} />
      </div>
      <ShownList of={changes} empty={<Empty>No change matches.</Empty>}>
        {({ data, next }) => (
          <>
            <Table caption="Changes, newest first" rows={data} columns={columns} />
            <Pager next={next} isFirst={after === null} />
          </>
        )}
      </ShownList>
    </Card>
  );
}
