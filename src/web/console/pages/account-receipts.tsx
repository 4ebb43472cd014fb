/** Receipts of an account's finished requests, with tokens, prices and the buckets that paid. */
import { apiPath, get } from "../../shared/api.ts";
import { wholeNumber } from "../../shared/numbers.ts";
import { PeriodPicker } from "../../shared/period.tsx";
import { paymentsOf } from "../../shared/receipts.tsx";
import { ResourceList } from "../../shared/resource-page.tsx";
import { go, Link, pathTo, useOpenPeriod, withParameters } from "../../shared/router.tsx";
import { columnsOf } from "../../shared/table.tsx";
import type { Key, Page, Receipt } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Badge } from "../../shared/values.tsx";
import type { AccountTabProps } from "./account-tab.ts";

const filters = [
  ["model", "Model"],
  ["key", "Key id"],
  ["request_id", "Request id"],
] as const;

/** Keys whose names are shown. Others are shown by their ids. */
const keysMax = 500;

/** The period of a page that names none. */
const daysDefault = 30;

const receiptColumns = columnsOf(
  "receipt",
  "finished_at model ending prompt_tokens cached_tokens completion_tokens cost_micro",
  {
    ending: (row: Receipt) => (
      <span title={row.stopped_by === null ? (row.note ?? undefined) : `stopped by ${row.stopped_by}`}>
        <Badge
          text={`${row.ending}${row.estimated ? " (estimated)" : ""}${row.late ? " (late)" : ""}${row.note === null ? "" : " (note)"}`}
        />
      </span>
    ),
    prompt_tokens: (row: Receipt) => tokens(row.prompt_tokens, row.price_prompt),
    cached_tokens: (row: Receipt) => tokens(row.cached_tokens, row.price_cached_prompt),
    completion_tokens: (row: Receipt) => tokens(row.completion_tokens, row.price_completion),
  },
);

export function AccountReceipts({ account: { id: account }, place }: AccountTabProps) {
  const query = Object.fromEntries(filters.map(([name]) => [name, place.query.get(name)]));
  // A request is found whenever it finished, unless the path names a period too.
  const isLookup = query.request_id && !place.query.has("from");
  const period = useOpenPeriod(place, daysDefault);
  const { from, to } = isLookup ? { from: null, to: null } : period;
  const isFiltered = filters.some(([name]) => query[name]);
  const keys = useLoaded(`keys of ${account}`, (signal) =>
    get<Page<Key>>(apiPath("accounts", account, "keys"), { limit: keysMax }, signal),
  );
  const nameOf = (id: string) => keys.value?.data.find((key) => key.id === id)?.name ?? null;
  return (
    <>
      <PeriodPicker from={from} to={to} hasAll />
      <form
        key={JSON.stringify(query)}
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          const typed = new FormData(event.currentTarget);
          const entries = filters.map(([name]) => [name, String(typed.get(name) ?? "").trim()]);
          const texts = Object.fromEntries(entries);
          // Another id is looked up in all receipts.
          const isNew = texts.request_id !== "" && texts.request_id !== query.request_id;
          go(withParameters({ ...texts, after: null, ...(isNew ? { from: "all", to: null } : {}) }));
        }}
      >
        {filters.map(([name, title]) => (
          <label key={name} for={`filter-${name}`}>
            {title}
            <input id={`filter-${name}`} name={name} type="text" defaultValue={query[name] ?? ""} />
          </label>
        ))}
        <button type="submit">Show</button>
      </form>
      <ResourceList<Receipt>
        place={place}
        path="/admin/usage"
        limit={100}
        query={{ account, ...query, from, to, order: "newest" }}
        caption="Receipts"
        columns={[
          ...receiptColumns,
          { title: "Paid by", cell: paidBy },
          ...columnsOf("receipt", "request_id key", {
            key: ({ key }: Receipt) => <span title={key}>{nameOf(key) ?? <code>{key}</code>}</span>,
          }),
        ]}
        note={<p class="quiet">Newest first. Point at tokens for their price.</p>}
        empty={
          from === null && to === null && !isFiltered ? (
            <>
              No request of this account has finished yet. Its first one needs a{" "}
              <Link to={pathTo("accounts", account, "keys")}>key</Link>.
            </>
          ) : (
            <>
              No request has finished in this selection.{" "}
              <Link to={`${location.pathname}?from=all`}>Show all requests</Link>
            </>
          )
        }
      />
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
