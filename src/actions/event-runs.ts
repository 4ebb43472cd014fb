/** How the service does what operators do with events. */
import Type from "typebox";
import { count, isoTime, isoTimeOrNull, objectFor, orNull, text, time } from "../accounts/json-objects.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { OperatorRefusal } from "../accounts/refusals.ts";
import {
  deliveryStates,
  type ListedDelivery,
  type ListedEndpoint,
  type WantedEvents,
} from "../store/events.ts";
import { bindFor } from "./bind.ts";
import { replayEvents, resumeEndpoint } from "./events.ts";
import { afterSeqIn, pageIn, pageOf, pageSchema } from "./pages.ts";
import { listDeliveries, listEndpoints } from "./views.ts";

const bind = bindFor<OperatorActions>();

/** An endpoint of the configuration, of the database, or of both. */
interface KnownEndpoint {
  id: string;
  isConfigured: boolean;
  row: ListedEndpoint | null;
}

export const endpointObject = objectFor<KnownEndpoint>("EventEndpoint")({
  name: [text, ({ id }) => id],
  configured: [
    Type.Boolean({ description: "false: it left the configuration, and gets nothing" }),
    (each) => each.isConfigured,
  ],
  state: [
    Type.Enum(["ok", "failing", "parked"], {
      description: "failing: the last attempt failed. parked: it failed for days, or wants no events",
    }),
    ({ row }) => (row?.parkedMs ? "parked" : row?.failingMs ? "failing" : "ok"),
  ],
  since: [orNull(time), ({ row }) => isoTimeOrNull(row?.parkedMs ?? row?.failingMs ?? null)],
  next_attempt_at: [orNull(time), ({ row }) => isoTimeOrNull(row?.nextMs || null)],
  pending: [count, ({ row }) => row?.pending ?? 0],
  set_aside: [count, ({ row }) => row?.setAside ?? 0],
  problem: [orNull(text), ({ row }) => row?.problem ?? null],
  node: [orNull(text), ({ row }) => row?.node ?? null],
});

export const deliveryObject = objectFor<ListedDelivery>("EventDelivery")({
  event_id: [text, (row) => row.id],
  number: [count, (row) => row.number],
  type: [text, (row) => row.type],
  account: [orNull(text), (row) => (row.account === "" ? null : row.account)],
  journal_number: [orNull(count), (row) => row.seq],
  at: [time, (row) => isoTime(row.atMs)],
  state: [Type.Enum([...deliveryStates]), (row) => row.state],
  attempts: [count, (row) => row.attempts],
  last_attempt_at: [orNull(time), (row) => isoTimeOrNull(row.triedMs)],
  next_attempt_at: [
    orNull(time),
    (row) => isoTimeOrNull(row.state === "pending" && row.nextMs > 0 ? row.nextMs : null),
  ],
  status: [orNull(count), (row) => row.status],
  answer: [orNull(text), (row) => row.answer],
  data: [Type.String({ description: "the data of the event, as JSON" }), (row) => row.data],
});

const replayObject = objectFor<{ endpoint: string; events: number }>("EventReplay")({
  endpoint: [text, (replay) => replay.endpoint],
  events: [count, (replay) => replay.events],
});

const resumeObject = objectFor<{ endpoint: string }>("EventResume")({
  endpoint: [text, (resumed) => resumed.endpoint],
});

async function known(actions: OperatorActions): Promise<KnownEndpoint[]> {
  const rows = new Map((await actions.store.events.endpoints()).map((row) => [row.name, row]));
  const configured = new Set(actions.endpoints().map(({ name }) => name));
  return [...new Set([...configured, ...rows.keys()])].sort().map((id) => ({
    ...{ id, isConfigured: configured.has(id), row: rows.get(id) ?? null },
  }));
}

function configured(actions: OperatorActions, name: string): WantedEvents {
  const found = actions.endpoints().find((each) => each.name === name);
  if (found === undefined) throw notFound(name);
  return found;
}

function notFound(name: string): OperatorRefusal {
  return new OperatorRefusal("endpoint_not_found", `There is no endpoint "${name}" in the configuration.`);
}

export const eventActions = {
  listEndpoints: bind(listEndpoints, pageSchema(endpointObject.schema), async (actions, page) =>
    pageIn(await known(actions), page, endpointObject.of),
  ),
  listDeliveries: bind(
    listDeliveries,
    pageSchema(deliveryObject.schema),
    async (actions, { endpoint, limit, after, account, state }) => {
      if (!(await known(actions)).some(({ id }) => id === endpoint)) throw notFound(endpoint);
      const before = afterSeqIn(after);
      return await pageOf(
        limit,
        (rows) => actions.store.events.deliveries({ endpoint, account, state, after: before, limit: rows }),
        deliveryObject.of,
        ({ number }) => String(number),
      );
    },
  ),
  replayEvents: bind(replayEvents, replayObject.schema, async (actions, { endpoint, from, to }) => {
    const { name, types } = configured(actions, endpoint);
    const events = await actions.store.events.replay({ name, types, fromMs: from, toMs: to });
    return replayObject.of({ endpoint, events });
  }),
  resumeEndpoint: bind(resumeEndpoint, resumeObject.schema, async (actions, { endpoint }) => {
    const { name } = configured(actions, endpoint);
    await actions.store.events.resume(name);
    return resumeObject.of({ endpoint });
  }),
};
