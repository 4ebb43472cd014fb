/** The journal of an account: its facts by kind, with the grant that each one begins or changes. */
import { apiPath } from "../../shared/api.ts";
import { type Filter, ResourceList } from "../../shared/resource-page.tsx";
import { Link, withParameters } from "../../shared/router.tsx";
import { ChangeLog } from "../change-log.tsx";
import { kindGroups } from "../journal-kinds.ts";
import type { JournalEntry } from "../types.ts";
import type { AccountTabProps } from "./account-tab.ts";

const orders = [
  ["", "newest first"],
  ["oldest", "oldest first"],
] as const;

const filters: readonly Filter[] = [
  { name: "kind", label: "Show", options: [...kindGroups].map(([name, { title }]) => [name, title]) },
  { name: "order", label: "Order", isLabelHidden: true, options: orders },
];

export function AccountJournal({ account: { id }, changes, place }: AccountTabProps) {
  const group = place.query.get("kind") ?? "";
  const { kinds } = kindGroups.get(group) ?? kindGroups.get("") ?? {};
  const order = place.query.get("order") === "oldest" ? "oldest" : "newest";
  return (
    <ResourceList<JournalEntry>
      place={place}
      path={apiPath("accounts", id, "journal")}
      limit={500}
      filters={filters}
      query={{ kind: kinds?.join(","), order }}
      version={String(changes)}
      caption="Journal of the account"
      List={ChangeLog}
      empty={
        <>
          The journal has no {place.query.has("after") && "further "}entries of this kind.{" "}
          {group !== "all" && <Link to={withParameters({ kind: "all", after: null })}>Show all entries</Link>}
        </>
      }
    />
  );
}
