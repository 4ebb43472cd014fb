/** The journal of an account: its facts by kind, with the grant that each one begins or changes. */
import { valuesText } from "../../../actions/columns.ts";
import { apiPath, get } from "../../shared/api.ts";
import { go, Link, withParameters } from "../../shared/router.tsx";
import { Empty, ShownList } from "../../shared/states.tsx";
import { columnsOf, Pager, Table } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { kindGroups } from "../journal-kinds.ts";
import type { JournalEntry } from "../types.ts";
import type { AccountTabProps } from "./account-tab.ts";

const columns = columnsOf(
  "journalEntry",
  "seq at kind bucket amount_micro grant by operation subject after",
  {
    after: (entry: JournalEntry) => valuesText(entry),
  },
);

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
            <Table caption="Journal of the account" rows={data} columns={columns} />
            <Pager next={next} isFirst={after === null} />
          </>
        )}
      </ShownList>
    </>
  );
}
