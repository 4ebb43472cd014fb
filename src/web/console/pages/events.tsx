/** Receivers of events: whether they work, and what became of each event. */

import { sendEvents } from "../../../actions/events.ts";
import { apiPath } from "../../shared/api.ts";
import { Button } from "../../shared/button.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import { type Filter, ResourceList } from "../../shared/resource-page.tsx";
import { Link, type Place, withParameters } from "../../shared/router.tsx";
import { Empty } from "../../shared/states.tsx";
import { columnsOf, ShownTable } from "../../shared/table.tsx";
import { useList } from "../../shared/use-loaded.ts";
import { accountCell } from "../account-link.tsx";
import type { EventDelivery, EventEndpoint } from "../types.ts";

const states = [
  ["", "all events"],
  ["pending", "waiting"],
  ["delivered", "delivered"],
  ["dead", "dead"],
  ["skipped", "skipped"],
] as const;

const filters: readonly Filter[] = [{ name: "state", label: "Show", options: states }];

const deliveryColumns = columnsOf(
  "eventDelivery",
  "at type account state attempts last_attempt_at? next_attempt_at? status? answer? event_id",
  { account: accountCell },
);

export function EventsPage({ place }: { place: Place }) {
  const endpoints = useList<EventEndpoint>(apiPath("events", "endpoints"));
  const chosen = place.query.get("endpoint") ?? endpoints.value?.data[0]?.name ?? null;
  return (
    <>
      <PageHead title="Events">
        <Button onClick={endpoints.reload}>Refresh</Button>
      </PageHead>
      <Card title="Receivers">
        <ShownTable
          of={endpoints}
          empty={<Empty>The configuration has no receivers of events.</Empty>}
          caption="Receivers of events"
          keyOf={({ name }) => name}
          columns={columnsOf(
            "eventEndpoint",
            "name state pending dead failing_accounts next_attempt_at? problem?",
            {
              name: ({ name }: EventEndpoint) => (
                <Link to={withParameters({ endpoint: name, after: null })} current={name === chosen}>
                  {name}
                </Link>
              ),
            },
          )}
        />
      </Card>
      {chosen !== null && (
        <Deliveries key={chosen} endpoint={chosen} place={place} changed={endpoints.reload} />
      )}
    </>
  );
}

function Deliveries({ endpoint, place, changed }: { endpoint: string; place: Place; changed(): void }) {
  return (
    <ResourceList<EventDelivery>
      place={place}
      path={apiPath("events", "endpoints", endpoint, "deliveries")}
      limit={100}
      filters={filters}
      caption="Events and what became of them"
      columns={deliveryColumns}
      keyOf={({ number }) => String(number)}
      actions={[
        { title: "Send again", action: sendEvents, parts: { target: { endpoint }, subject: endpoint } },
      ]}
      empty="There are no such events."
      card={`Events for ${endpoint}`}
      changed={changed}
    />
  );
}
