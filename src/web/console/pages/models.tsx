/** Models with state, load, their last 24 hours on this node, and prices. */
import { counted } from "../../shared/numbers.ts";
import { columnsOf, Table } from "../../shared/table.tsx";
import { Badge, Time } from "../../shared/values.tsx";
import type { Model } from "../types.ts";

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
  return (
    <>
      <p class="quiet">Prices are credits for a million tokens.</p>
      <Table
        caption="Context and prices of the models"
        rows={models}
        columns={columnsOf(
          "model",
          "id context_window pricing.prompt pricing.cached_prompt pricing.completion",
        )}
      />
    </>
  );
}

/** Upstream servers that do not work, with their last error. */
function serversOf({ servers }: Model) {
  if (servers === null) return <span class="quiet">in this service</span>;
  const failing = servers.filter(({ state }) => state !== "ok");
  if (failing.length === 0) return counted(servers.length, "server");
  return failing.map(({ url, state, since, last_error }) => (
    <p key={url}>
      <Badge text={state} /> <Time at={since} />: {last_error?.message ?? url}
    </p>
  ));
}
