/** The journal of an account: every change of its credits, with the balance after it. */
import { apiPath, get } from "../../shared/api.ts";
import { Empty, Shown } from "../../shared/states.tsx";
import { Pager, Table } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Amount, Badge, Time } from "../../shared/values.tsx";
import type { JournalEntry } from "../types.ts";
import type { AccountTabProps } from "./account-tab.ts";

export function AccountJournal({ account: { id }, changes, place }: AccountTabProps) {
  const after = place.query.get("after");
  const journal = useLoaded(`journal ${id} ${after} ${changes}`, (signal) =>
    get<Page<JournalEntry>>(apiPath("accounts", id, "journal"), { after, limit: 100 }, signal),
  );
  const signed = (micro: number) => (micro === 0 ? <span class="quiet">–</span> : <Amount micro={micro} />);
  return (
    <Shown of={journal}>
      {({ data, next }) =>
        data.length === 0 ? (
          <Empty>The journal has no further entries.</Empty>
        ) : (
          <>
            <p class="quiet">Oldest entries first. Amounts are credits.</p>
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
        )
      }
    </Shown>
  );
}
