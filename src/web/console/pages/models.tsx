/** Models with state, load, their last 24 hours on this node, and prices. */
import { counted, wholeNumber } from "../../shared/numbers.ts";
import { type Column, Table } from "../../shared/table.tsx";
import { Badge, Time } from "../../shared/values.tsx";
import type { Model } from "../types.ts";

const prices: Column<Model>[] = [
  { title: "Model", cell: ({ id }) => id },
  { title: "Context", isNumber: true, cell: (model) => wholeNumber(model.context_window) },
  { title: "Prompt", isNumber: true, cell: ({ pricing }) => price(pricing.prompt) },
  { title: "Cached prompt", isNumber: true, cell: ({ pricing }) => price(pricing.cached_prompt) },
  { title: "Answer", isNumber: true, cell: ({ pricing }) => price(pricing.completion) },
];

/** State, load, and the last 24 hours on the node that the page asks. */
export function ModelTable({ models }: { models: readonly Model[] }) {
  return (
    <Table
      caption="Models with state, load and speed"
      rows={models}
      columns={[
        { title: "Model", cell: ({ id }) => id },
        { title: "State", cell: ({ state }) => <Badge text={state} /> },
        { title: "Running", isNumber: true, cell: ({ load }) => wholeNumber(load?.running ?? null) },
        { title: "Waiting", isNumber: true, cell: ({ load }) => wholeNumber(load?.waiting ?? null) },
        { title: "Paused", isNumber: true, cell: ({ load }) => wholeNumber(load?.paused ?? null) },
        {
          title: "Requests in 24 h",
          isNumber: true,
          cell: (model) => wholeNumber(model.last_day.requests),
        },
        { title: "Failed", isNumber: true, cell: (model) => wholeNumber(model.last_day.errors) },
        {
          ...{ title: "Tokens/s", isNumber: true },
          cell: ({ last_day: { tokens_per_second: speed } }) => speed?.median ?? "–",
        },
        {
          ...{ title: "First token", isNumber: true },
          cell: ({ last_day: { first_token_ms: first } }) => (first === null ? "–" : `${first.median} ms`),
        },
        { title: "Servers", cell: serversOf },
      ]}
    />
  );
}

export function PriceTable({ models }: { models: readonly Model[] }) {
  return (
    <>
      <p class="quiet">Prices are credits for a million tokens.</p>
      <Table caption="Context and prices of the models" rows={models} columns={prices} />
    </>
  );
}

function price(credits: number) {
  return credits === 0 ? "free" : wholeNumber(credits);
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
