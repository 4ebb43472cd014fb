/** What runs, and finished requests, newest first, with what each one cost and why. */

import { exactCredits } from "../../../units.ts";
import { apiPath } from "../../shared/api.ts";
import { Button } from "../../shared/button.tsx";
import { Charge } from "../../shared/charge.tsx";
import { Dialog } from "../../shared/form-dialog.tsx";
import { keyTitle } from "../../shared/key-values.tsx";
import { PageHead } from "../../shared/layout.tsx";
import { LiveMark } from "../../shared/live.tsx";
import { PeriodPicker } from "../../shared/period.tsx";
import { costCell, endingCell, NoneFinished } from "../../shared/receipts.tsx";
import { type ListAction, ResourceList, useActions } from "../../shared/resource-page.tsx";
import { Link, type Place, pathTo, useOpenPeriod } from "../../shared/router.tsx";
import { columnsOf } from "../../shared/table.tsx";
import type { Receipt } from "../../shared/types.ts";
import { useKeys, useModels } from "../use-own.ts";
import { RefusedRequests, refusedPath } from "./refused.tsx";
import { RunningRequests, useRunning } from "./running.tsx";

/** The period of a page that names none. */
const daysDefault = 30;

const all = ["", "all"] as const;

export function RequestsPage({ place }: { place: Place }) {
  const { button, dialog } = useActions();
  const [model, key] = ["model", "key"].map((name) => place.query.get(name));
  const live = useRunning();
  const period = useOpenPeriod(place, daysDefault);
  const keys = useKeys();
  const names = new Map(keys.value?.data.map((each) => [each.id, keyTitle(each)]));
  const models = useModels();
  const isRefused = place.query.get("show") === "refused";
  const isAll = period.from === null && period.to === null && !model && !key;
  const modelIds = new Set([...(models.value?.data.map(({ id }) => id) ?? []), ...(model ? [model] : [])]);
  return (
    <>
      <PageHead title="Requests">
        <LiveMark of={live} />
      </PageHead>
      <RunningRequests of={live} nameOfKey={(id) => names.get(id) ?? id} isHiddenIfEmpty />
      <nav class="tabs" aria-label="Lists of requests">
        <Link to={pathTo("requests")} current={!isRefused}>
          Finished
        </Link>
        <Link to={refusedPath()} current={isRefused}>
          Refused
        </Link>
      </nav>
      {isRefused ? (
        <RefusedRequests nameOfKey={(id) => names.get(id) ?? id} />
      ) : (
        <>
          <PeriodPicker {...period} hasAll />
          <ResourceList<Receipt>
            place={place}
            path={apiPath("requests")}
            limit={50}
            filters={[
              {
                name: "model",
                label: "Model",
                options: [all, ...[...modelIds].map((id) => [id, id] as const)],
              },
              { name: "key", label: "Key", options: [all, ...names] },
            ]}
            hasRefresh
            query={period}
            caption="Finished requests"
            columns={[
              ...columnsOf("receipt", "finished_at cost_micro", { cost_micro: costCell }),
              {
                title: "Details",
                cell: (row) => {
                  const label = `Why ${exactCredits(row.cost_micro)} credits? Request ${row.request_id}`;
                  return button(whyOf(row, names.get(row.key) ?? row.key), label);
                },
              },
              ...columnsOf("receipt", "model key ending prompt_tokens completion_tokens", {
                key: ({ key }: Receipt) => names.get(key) ?? <code>{key}</code>,
                ending: endingCell,
              }),
            ]}
            note={() => (
              <p class="quiet above">
                Newest first. Open the cost of a request to see how it was calculated.
              </p>
            )}
            empty={
              isAll ? (
                <>
                  No request has finished yet. <Link to={pathTo("chat")}>Try a model</Link>, or{" "}
                  <Link to={pathTo("start")}>send the first request from your program</Link>.
                </>
              ) : (
                <NoneFinished />
              )
            }
          />
        </>
      )}
      {dialog}
    </>
  );
}

function whyOf(receipt: Receipt, keyName: string): ListAction {
  const dialog: ListAction["dialog"] = (close) => (
    <Dialog title="Cost of a request" cancel={close}>
      <Charge of={receipt} keyName={keyName} />
      <div class="buttons">
        <Button class="primary" onClick={() => close()}>
          Close
        </Button>
      </div>
    </Dialog>
  );
  return { title: "Why?", dialog };
}
