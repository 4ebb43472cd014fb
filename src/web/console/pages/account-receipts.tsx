/** Receipts of an account's finished requests. Each leads to the page that explains its cost. */
import { apiPath } from "../../shared/api.ts";
import { PeriodPicker } from "../../shared/period.tsx";
import { costCell, endingCell, NoneFinished } from "../../shared/receipts.tsx";
import { type Filter, ResourceList } from "../../shared/resource-page.tsx";
import { Link, pathTo, useOpenPeriod } from "../../shared/router.tsx";
import { columnsOf } from "../../shared/table.tsx";
import type { Key, Receipt } from "../../shared/types.ts";
import { useList } from "../../shared/use-loaded.ts";
import { ShortId } from "../../shared/values.tsx";
import type { AccountTabProps } from "./account-tab.ts";

const filters: readonly Filter[] = [
  { name: "model", label: "Model" },
  { name: "key", label: "Key id" },
];

export function AccountReceipts({ account: { id: account }, place }: AccountTabProps) {
  const { from, to } = useOpenPeriod(place, 30);
  // Further keys are shown by their ids.
  const keys = useList<Key>(apiPath("accounts", account, "keys"));
  const nameOf = (id: string) => keys.value?.data.find((key) => key.id === id)?.name ?? null;
  return (
    <>
      <PeriodPicker from={from} to={to} hasAll />
      <ResourceList<Receipt>
        place={place}
        path="/admin/usage"
        limit={100}
        filters={filters}
        query={{ account, from, to, order: "newest" }}
        caption="Receipts"
        columns={columnsOf(
          "receipt",
          "finished_at request_id cost_micro model ending prompt_tokens cached_tokens completion_tokens key",
          {
            request_id: ({ request_id: id }: Receipt) => (
              <Link to={pathTo("requests", id)}>
                <ShortId of={id} />
              </Link>
            ),
            cost_micro: costCell,
            ending: endingCell,
            key: ({ key }: Receipt) => <span title={key}>{nameOf(key) ?? <code>{key}</code>}</span>,
          },
        )}
        empty={<NoneFinished />}
      />
    </>
  );
}
