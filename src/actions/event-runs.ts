/** How the service does what operators do with events. */
import Type from "typebox";
import { count, isoTime, isoTimeOrNull, objectFor, orNull, text, time } from "../accounts/json-objects.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { Refusal } from "../errors.ts";
import { deliveryStates, type ListedDelivery, type ListedEndpoint } from "../store/events.ts";
import { bindFor } from "./bind.ts";
import { sendEvents } from "./events.ts";
import { afterSeqIn, pageIn, pageOf, pageSchema } from "./pages.ts";
import { listDeliveries, listEndpoints } from "./views.ts";

const bind = bindFor<OperatorActions>();

export const endpointObject = objectFor<ListedEndpoint>("EventEndpoint")({
  name: [text, (row) => row.name],
  state: [
    Type.Enum(["ok", "failing"], { description: "failing: an event waits because its last attempt failed" }),
    (row) => (row.failing > 0 ? "failing" : "ok"),
  ],
  pending: [count, (row) => row.pending],
  dead: [count, (row) => row.dead],
  failing_accounts: [
    Type.Integer({ minimum: 0, description: "accounts whose later events wait for one that failed" }),
    (row) => row.failing,
  ],
  next_attempt_at: [orNull(time), (row) => isoTimeOrNull(row.nextMs)],
  problem: [orNull(text), (row) => row.problem],
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

const sendObject = objectFor<{ endpoint: string; events: number }>("EventSend")({
  endpoint: [text, (sent) => sent.endpoint],
  events: [count, (sent) => sent.events],
});

function requireEndpoint(actions: OperatorActions, endpoint: string): void {
  if (actions.endpoints().some(({ name }) => name === endpoint)) return;
  throw new Refusal("endpoint_not_found", `There is no endpoint "${endpoint}" in the configuration.`);
}

export const eventActions = {
  listEndpoints: bind(listEndpoints, pageSchema(endpointObject.schema), async (actions, page) => {
    const rows = await actions.store.events.endpoints(actions.endpoints());
    return pageIn(
      rows.map((row) => ({ ...row, id: row.name })),
      page,
      endpointObject.of,
    );
  }),
  listDeliveries: bind(
    listDeliveries,
    pageSchema(deliveryObject.schema),
    async (actions, { endpoint, limit, after, account, state }) => {
      requireEndpoint(actions, endpoint);
      const before = afterSeqIn(after);
      return await pageOf(
        limit,
        (rows) => actions.store.events.deliveries({ endpoint, account, state, after: before, limit: rows }),
        deliveryObject.of,
        ({ number }) => String(number),
      );
    },
  ),
  sendEvents: bind(sendEvents, sendObject.schema, async (actions, { endpoint, event }) => {
    requireEndpoint(actions, endpoint);
    const { events } = actions.store;
    if (event === undefined) return sendObject.of({ endpoint, events: await events.sendFailed(endpoint) });
    if (await events.sendAgain(endpoint, event)) return sendObject.of({ endpoint, events: 1 });
    throw new Refusal("event_not_found", `The endpoint "${endpoint}" has no event "${event}".`);
  }),
};
