/** Finished requests, newest first, with what each one cost and why. */

import { useState } from "preact/hooks";
import { exactCredits } from "../../../units.ts";
import { apiPath, get } from "../../shared/api.ts";
import { PageHead } from "../../shared/layout.tsx";
import { Options } from "../../shared/options.tsx";
import { PeriodPicker } from "../../shared/period.tsx";
import { costCell } from "../../shared/receipts.tsx";
import { go, Link, type Place, pathTo, useOpenPeriod, withParameters } from "../../shared/router.tsx";
import { Empty, ShownList } from "../../shared/states.tsx";
import { columnsOf, Pager, Table } from "../../shared/table.tsx";
import type { Page, Receipt } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { keyTitle, useKeys } from "../key-names.ts";
import { endingCell } from "../request-state.tsx";
import type { UsableModel } from "../types.ts";
import { Charge } from "./charge.tsx";

const rowsMax = 50;
/** The period of a page that names none. */
const daysDefault = 30;

export function RequestsPage({ place }: { place: Place }) {
  const { query } = place;
  const [opened, setOpened] = useState<Receipt | null>(null);
  const [model, key, after] = ["model", "key", "after"].map((name) => query.get(name));
  const period = useOpenPeriod(place, daysDefault);
  const keys = useKeys();
  const names = new Map(keys.value?.data.map((each) => [each.id, keyTitle(each)]));
  const models = useLoaded("models", (signal) => get<{ data: UsableModel[] }>(apiPath("models"), {}, signal));
  const receipts = useLoaded(`requests ${period.from} ${period.to} ${query}`, (signal) =>
    get<Page<Receipt>>(apiPath("requests"), { ...period, model, key, after, limit: rowsMax }, signal),
  );
  const isAll = period.from === null && period.to === null && !model && !key;
  const set = (name: string) => (value: string) => go(withParameters({ [name]: value, after: null }));
  const modelIds = new Set([...(models.value?.data.map(({ id }) => id) ?? []), ...(model ? [model] : [])]);
  return (
    <>
      <PageHead title="Requests" />
      <PeriodPicker {...period} hasAll />
      <div class="filters">
        <Choice name="Model" value={model} options={[...modelIds].map((id) => [id, id])} set={set("model")} />
        <Choice name="Key" value={key} options={[...names]} set={set("key")} />
        <button type="button" onClick={receipts.reload}>
          Refresh
        </button>
      </div>
      <ShownList
        of={receipts}
        empty={
          <Empty>
            {isAll ? "No request has finished yet." : "No request has finished in this selection."}{" "}
            {!isAll && <Link to={`${location.pathname}?from=all`}>Show all requests</Link>}
            {isAll && (
              <>
                <Link to={pathTo("chat")}>Try a model</Link>, or{" "}
                <Link to={pathTo("start")}>send the first request from your program</Link>.
              </>
            )}
          </Empty>
        }
      >
        {({ data, next }) => (
          <>
            <p class="quiet above">Newest first. Open the cost of a request to see how it was calculated.</p>
            <Table
              caption="Finished requests"
              rows={data}
              columns={[
                ...columnsOf("receipt", "finished_at cost_micro", { cost_micro: costCell }),
                {
                  title: "Details",
                  cell: (row) => (
                    <button
                      type="button"
                      aria-label={`Why ${exactCredits(row.cost_micro)} credits? Request ${row.request_id}`}
                      onClick={() => setOpened(row)}
                    >
                      Why?
                    </button>
                  ),
                },
                ...columnsOf("receipt", "model key ending prompt_tokens completion_tokens", {
                  key: ({ key }: Receipt) => names.get(key) ?? <code>{key}</code>,
                  ending: endingCell,
                }),
              ]}
            />
            <Pager next={next} isFirst={!after} />
          </>
        )}
      </ShownList>
      {opened !== null && (
        <Charge of={opened} keyName={names.get(opened.key) ?? opened.key} close={() => setOpened(null)} />
      )}
    </>
  );
}

function Choice(props: {
  name: string;
  value: string | null | undefined;
  options: readonly (readonly [value: string, title: string])[];
  set(value: string): void;
}) {
  const { name, value, options, set } = props;
  const id = `filter-${name.toLowerCase()}`;
  return (
    <label for={id}>
      {name}
      <select id={id} value={value ?? ""} onChange={({ currentTarget }) => set(currentTarget.value)}>
        <option value="">all</option>
        <Options of={options} />
      </select>
    </label>
  );
}
