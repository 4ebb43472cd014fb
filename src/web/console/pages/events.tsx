/** Receivers of events: whether they work, and what became of each event. */
import { sendEvents } from "../../../actions/events.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { apiPath, get } from "../../shared/api.ts";
import { useAction } from "../../shared/form-dialog.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import { go, Link, type Place, withParameters } from "../../shared/router.tsx";
import { Empty, ShownList } from "../../shared/states.tsx";
import { columnsOf, Pager, Table } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Badge } from "../../shared/values.tsx";
import { AccountLink } from "../account-link.tsx";
import type { EventDelivery, EventEndpoint } from "../types.ts";

const states = {
  "": "all events",
  pending: "waiting",
  delivered: "delivered",
  dead: "dead",
  skipped: "skipped",
} as const;

const tones: Readonly<Record<string, string>> = {
  ok: "good",
  delivered: "good",
  failing: "bad",
  dead: "bad",
};

export function EventsPage({ place }: { place: Place }) {
  const endpoints = useLoaded("event endpoints", (signal) =>
    get<Page<EventEndpoint>>(apiPath("events", "endpoints"), { limit: 500 }, signal),
  );
  const chosen = place.query.get("endpoint") ?? endpoints.value?.data[0]?.name ?? null;
  return (
    <>
      <PageHead title="Events">
        <button type="button" onClick={endpoints.reload}>
          Refresh
        </button>
      </PageHead>
      <Card title="Receivers">
        <ShownList of={endpoints} empty={<Empty>The configuration has no receivers of events.</Empty>}>
          {({ data }) => (
            <Table
              caption="Receivers of events"
              rows={data}
              keyOf={({ name }) => name}
              columns={columnsOf(
                "eventEndpoint",
                "name state pending dead failing_accounts next_attempt_at? problem?",
                {
                  name: ({ name }: EventEndpoint) => (
                    <Link to={withParameters({ endpoint: name, after: null })}>{name}</Link>
                  ),
                  state: ({ state }: EventEndpoint) => (
                    <Badge text={state} tone={tones[state] ?? "neutral"} />
                  ),
                },
              )}
            />
          )}
        </ShownList>
      </Card>
      {chosen !== null && (
        <Deliveries key={chosen} endpoint={chosen} place={place} changed={endpoints.reload} />
      )}
    </>
  );
}

function Deliveries({ endpoint, place, changed }: { endpoint: string; place: Place; changed(): void }) {
  const after = place.query.get("after");
  const state = place.query.get("state") ?? "";
  const list = useLoaded(`deliveries ${endpoint} ${state} ${after}`, (signal) =>
    get<Page<EventDelivery>>(
      apiPath("events", "endpoints", endpoint, "deliveries"),
      { state: state === "" ? undefined : state, after, limit: 100 },
      signal,
    ),
  );
  const { open, show, close } = useAction<"send">(() => {
    list.reload();
    changed();
  });
  return (
    <Card
      title={`Events for ${endpoint}`}
      actions={
        <button type="button" onClick={() => show("send")}>
          Send again
        </button>
      }
    >
      <div class="filters">
        <label for="state">
          Show
          <select
            id="state"
            value={state}
            onChange={({ currentTarget }) =>
              go(withParameters({ endpoint, state: currentTarget.value || null, after: null }))
            }
          >
            {Object.entries(states).map(([value, title]) => (
              <option key={value} value={value}>
                {title}
              </option>
            ))}
          </select>
        </label>
      </div>
      <ShownList of={list} empty={<Empty>There are no such events.</Empty>}>
        {({ data, next }) => (
          <>
            <Table
              caption="Events and what became of them"
              rows={data}
              keyOf={({ number }) => String(number)}
              columns={columnsOf(
                "eventDelivery",
                "at type account state attempts last_attempt_at? next_attempt_at? status? answer? event_id",
                {
                  account: ({ account }: EventDelivery) => account !== null && <AccountLink id={account} />,
                  state: (row: EventDelivery) => (
                    <Badge text={row.state} tone={tones[row.state] ?? "neutral"} />
                  ),
                },
              )}
            />
            <Pager next={next} isFirst={after === null} />
          </>
        )}
      </ShownList>
      {open === "send" && (
        <ActionDialog action={sendEvents} target={{ endpoint }} subject={endpoint} close={close} />
      )}
    </Card>
  );
}
