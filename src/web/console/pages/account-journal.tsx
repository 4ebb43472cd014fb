/** The journal of an account: changes of its credits by kind, with the balance after each. */
import { apiPath, get } from "../../shared/api.ts";
import { go, Link, withParameters } from "../../shared/router.tsx";
import { Empty, ShownList } from "../../shared/states.tsx";
import { Pager, Table } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Amount, Badge, Time } from "../../shared/values.tsx";
import { kindGroups } from "../journal-kinds.ts";
import type { JournalEntry } from "../types.ts";
import type { AccountTabProps } from "./account-tab.ts";

export function AccountJournal({ account: { id }, changes, place }: AccountTabProps) {
  const after = place.query.get("after");
  const isOldest = place.query.get("order") === "oldest";
  const chosen = place.query.get("kind") ?? "";
  const group = kindGroups.has(chosen) ? chosen : "";
  const kind = kindGroups.get(group)?.kinds?.join(",");
  const order = isOldest ? "oldest" : "newest";
  const journal = useLoaded(`journal ${id} ${kind} ${order} ${after} ${changes}`, (signal) =>
    get<Page<JournalEntry>>(apiPath("accounts", id, "journal"), { kind, order, after, limit: 100 }, signal),
  );
  const set = (name: string, value: string) => go(withParameters({ [name]: value, after: null }));
  const signed = (micro: number) => (micro === 0 ? <span class="quiet">–</span> : <Amount micro={micro} />);
  return (
    <>
      <div class="filters">
        <label for="kind">
          Show
          <select id="kind" value={group} onChange={({ currentTarget }) => set("kind", currentTarget.value)}>
            {[...kindGroups].map(([name, { title }]) => (
              <option key={name} value={name}>
                {title}
              </option>
            ))}
          </select>
        </label>
        <label for="order">
          <span class="hidden">Order</span>
          <select
            id="order"
            value={isOldest ? "oldest" : ""}
            onChange={({ currentTarget }) => set("order", currentTarget.value)}
          >
            <option value="">newest first</option>
            <option value="oldest">oldest first</option>
          </select>
        </label>
      </div>
      <ShownList
        of={journal}
        empty={
          <Empty>
            The journal has no {after === null ? "" : "further "}entries of this kind.{" "}
            {group !== "all" && (
              <Link to={withParameters({ kind: "all", after: null })}>Show all entries</Link>
            )}
          </Empty>
        }
      >
        {({ data, next }) => (
          <>
            <p class="quiet">Amounts are credits.</p>
            <Table
              caption="Journal of the account"
              rows={data}
              keyOf={({ seq }) => String(seq)}
              columns={[
                { title: "Number", isNumber: true, cell: ({ seq }) => seq },
                { title: "Time", cell: ({ at }) => <Time at={at} /> },
                { title: "Kind", cell: ({ kind }) => <Badge text={kind} /> },
                { title: "Base", isNumber: true, cell: (row) => signed(row.base_delta_micro) },
                { title: "Overage", isNumber: true, cell: (row) => signed(row.overage_delta_micro) },
                { title: "Additional", isNumber: true, cell: (row) => signed(row.additional_delta_micro) },
                {
                  title: "Left after it",
                  isNumber: true,
                  cell: (row) => (
                    <Amount
                      micro={row.base_after_micro + row.overage_after_micro + row.additional_after_micro}
                    />
                  ),
                },
                { title: "Id", cell: ({ operation }) => <code>{operation}</code> },
                { title: "Note", cell: ({ note }) => note ?? <span class="quiet">–</span> },
              ]}
            />
            <Pager next={next} isFirst={after === null} />
          </>
        )}
      </ShownList>
    </>
  );
}
