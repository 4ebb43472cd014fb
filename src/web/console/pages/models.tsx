/** Models with state, load, their last 24 hours on this node, and prices. */

import { counted } from "../../shared/numbers.ts";
import { useActions } from "../../shared/resource-page.tsx";
import { columnsOf, Table } from "../../shared/table.tsx";
import { Badge, Time } from "../../shared/values.tsx";
import type { Model } from "../types.ts";
import { priceDraft } from "./drafts.tsx";

/** State, load, and the last 24 hours on the node that the page asks. */
export function ModelTable({ models }: { models: readonly Model[] }) {
  return (
    <Table
      caption="Models with state, load and speed"
      rows={models}
      columns={[
        ...columnsOf("model", "id state load.running load.waiting load.paused last_day.requests"),
        ...columnsOf(
          "model",
          "last_day.errors last_day.tokens_per_second.median last_day.first_token_ms.median servers",
          { servers: serversOf },
        ),
      ]}
    />
  );
}

export function PriceTable({ models }: { models: readonly Model[] }) {
  const { button, dialog } = useActions();
  return (
    <>
      <Table
        caption="Context and prices of the models"
        rows={models}
        columns={[
          ...columnsOf("model", "id context_window pricing.prompt pricing.cached_prompt pricing.completion"),
          {
            title: "Change",
            cell: (model) => button(priceDraft(model), `Change its prices: ${model.id}`),
          },
        ]}
      />
      <p class="quiet above">Prices are credits for a million tokens.</p>
      {dialog}
    </>
  );
}

/** Upstream servers that do not work or answer oddly, with their last error. */
function serversOf({ servers }: Model) {
  if (servers === null) return <span class="quiet">in this service</span>;
  const odd = servers.filter(
    ({ state, paused_accounts, notices }) => state !== "ok" || paused_accounts > 0 || notices.length > 0,
  );
  if (odd.length === 0) return counted(servers.length, "server");
  return odd.map(({ url, state, since, last_error, paused_accounts, notices }) => (
    <div key={url}>
      <p>
        {state === "ok" ? url : <Badge text={state} />} {state !== "ok" && <Time at={since} />}
        {(state !== "ok" || paused_accounts > 0) && `: ${last_error?.message ?? url}`}
      </p>
      {paused_accounts > 0 && (
        <p>
          Requests of {counted(paused_accounts, "account")} keep failing there, and wait for the end of a
          pause.
        </p>
      )}
      {notices.map(({ kind, at, message }) => (
        <p key={message}>
          <Badge text={kind} /> <Time at={at} />: {message}
        </p>
      ))}
    </div>
  ));
}
