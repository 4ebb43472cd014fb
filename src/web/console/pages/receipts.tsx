/** Receipts of finished requests, with tokens, prices and the buckets that paid. */
import { apiPath, get } from "../../shared/api.ts";
import { wholeNumber } from "../../shared/numbers.ts";
import { paymentsOf, ReceiptTable } from "../../shared/receipts.tsx";
import { go, type Place, withParameters } from "../../shared/router.tsx";
import { Empty, Shown } from "../../shared/states.tsx";
import { Pager } from "../../shared/table.tsx";
import { dayOf } from "../../shared/times.ts";
import type { Key, Page, Receipt } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Amount, Badge } from "../../shared/values.tsx";

const filters = [
  ["from", "From", "date"],
  ["to", "Before", "date"],
  ["model", "Model", "text"],
  ["key", "Key id", "text"],
  ["request_id", "Request id", "text"],
] as const;

/** Keys whose names are shown. Others are shown by their ids. */
const keysMax = 500;

/** The day before today, in UTC. */
function yesterday(): { from: string; to: string } {
  return { from: dayOf(Date.now(), -1), to: dayOf(Date.now()) };
}

export function Receipts({ place, account }: { place: Place; account: string }) {
  const query = Object.fromEntries(filters.map(([name]) => [name, place.query.get(name)]));
  const after = place.query.get("after");
  const receipts = useLoaded(`receipts ${account} ${place.query}`, (signal) =>
    get<Page<Receipt>>("/admin/usage", { account, ...query, order: "newest", after, limit: 100 }, signal),
  );
  const keys = useLoaded(`keys of ${account}`, (signal) =>
    get<Page<Key>>(apiPath("accounts", account, "keys"), { limit: keysMax }, signal),
  );
  const nameOf = (id: string) => keys.value?.data.find((key) => key.id === id)?.name ?? null;
  return (
    <>
      <form
        key={place.query.toString()}
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          const typed = new FormData(event.currentTarget);
          const entries = filters.map(([name]) => [name, String(typed.get(name) ?? "").trim()]);
          go(withParameters({ ...Object.fromEntries(entries), after: null }));
        }}
      >
        {filters.map(([name, title, type]) => (
          <label key={name} for={`filter-${name}`}>
            {title}
            {type === "date" ? (
              <input id={`filter-${name}`} name={name} type="date" defaultValue={query[name] ?? ""} />
            ) : (
              <input id={`filter-${name}`} name={name} type="text" defaultValue={query[name] ?? ""} />
            )}
          </label>
        ))}
        <button type="submit">Show</button>
        <button type="button" onClick={() => go(withParameters({ ...yesterday(), after: null }))}>
          Yesterday
        </button>
      </form>
      <Shown of={receipts}>
        {({ data, next }) =>
          data.length === 0 ? (
            <Empty>No request has finished in this selection. Change the filters, or send a request.</Empty>
          ) : (
            <>
              <p class="quiet">Newest first. Costs are credits; point at tokens for their price.</p>
              <ReceiptTable
                caption="Receipts"
                rows={data}
                columns={[
                  { title: "Model", cell: (row) => row.model },
                  {
                    title: "Ending",
                    cell: (row) => (
                      <Badge
                        text={`${row.ending}${row.estimated ? " (estimated)" : ""}${row.late ? " (late)" : ""}`}
                      />
                    ),
                  },
                  {
                    title: "Prompt",
                    isNumber: true,
                    cell: (row) => tokens(row.prompt_tokens, row.price_prompt),
                  },
                  {
                    ...{ title: "Cached", isNumber: true },
                    cell: (row) => tokens(row.cached_tokens, row.price_cached_prompt),
                  },
                  {
                    ...{ title: "Answer", isNumber: true },
                    cell: (row) => tokens(row.completion_tokens, row.price_completion),
                  },
                  { title: "Cost", isNumber: true, cell: (row) => <Amount micro={row.cost_micro} /> },
                  { title: "Paid by", cell: paidBy },
                  { title: "Request", cell: (row) => <code>{row.request_id}</code> },
                  {
                    title: "Key",
                    cell: (row) => <span title={row.key}>{nameOf(row.key) ?? <code>{row.key}</code>}</span>,
                  },
                ]}
              />
              <Pager next={next} isFirst={after === null} />
            </>
          )
        }
      </Shown>
    </>
  );
}

function tokens(count: number, price: number) {
  return <span title={`${wholeNumber(price)} credits per million tokens`}>{wholeNumber(count)}</span>;
}

function paidBy(row: Receipt) {
  const names = paymentsOf(row)
    .filter(([, micro]) => micro > 0)
    .map(([name]) => name);
  return names.length === 0 ? <span class="quiet">–</span> : names.join(", ");
}
