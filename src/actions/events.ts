/** What operators do with events and their receivers. Pages bundle this file. */
import * as rules from "../accounts/value-rules.ts";
import { action } from "./action.ts";
import { choice, moment, optional, text } from "./field.ts";
import { accountId } from "./fields.ts";
import { pageFields } from "./pages.ts";

const endpoint = text(rules.name, {
  label: "Endpoint",
  about: "as events endpoints shows it",
  rule: "the name of an endpoint in the configuration, or mail",
});

export const listEndpoints = action({
  id: "listEndpoints",
  title: "List the receivers of events, with what waits for each of them",
  http: "GET /admin/events/endpoints",
  role: "viewer",
  input: { ...pageFields },
  refuses: [],
});

export const listDeliveries = action({
  id: "listDeliveries",
  title: "List what became of events at an endpoint, newest first",
  help: "With the status of the last answer and the beginning of its body. Events are kept for 30 days.",
  http: "GET /admin/events/endpoints/{endpoint}/deliveries",
  role: "viewer",
  input: {
    endpoint,
    ...pageFields,
    account: optional(accountId),
    state: optional(
      choice(["pending", "delivered", "skipped", "set_aside"], {
        rule: '"pending", "delivered", "skipped" or "set_aside"',
      }),
    ),
  },
  refuses: ["endpoint_not_found", "list_too_slow"],
});

export const replayEvents = action({
  id: "replayEvents",
  title: "Send the events of a time to an endpoint again",
  help: "Also those that it has never got, and those that were set aside. They keep their ids, so a receiver that remembers ids ignores what it has. `from` is inclusive, `to` exclusive.",
  http: "POST /admin/events/endpoints/{endpoint}/replay",
  cli: "events replay <endpoint>",
  examples: ["events replay billing --from 2026-11-26T08:00:00Z --to 2026-11-26T12:00:00Z"],
  role: "operator",
  input: {
    endpoint,
    from: moment({ day: "start", label: "From", option: "--from <time>", about: "events from this time on" }),
    to: moment({ day: "start", label: "Until", option: "--to <time>", about: "events before this time" }),
  },
  refuses: ["endpoint_not_found", "list_too_slow"],
  form: {
    title: "Send events to {name} again",
    intro: "They keep their ids. A receiver that remembers ids ignores the events that it has.",
    submit: "Send again",
  },
  check({ from, to }) {
    return from < to ? null : { param: "to", message: "to must be later than from." };
  },
  done: ({ events }: { events: number }) => `${events} events are sent again.`,
});

export const resumeEndpoint = action({
  id: "resumeEndpoint",
  title: "Send to an endpoint that is parked or that waits",
  help: "Tries the waiting events at once, in place of after the present pause.",
  http: "POST /admin/events/endpoints/{endpoint}/resume",
  cli: "events resume <endpoint>",
  examples: ["events resume billing"],
  role: "operator",
  input: { endpoint },
  refuses: ["endpoint_not_found"],
  form: { title: "Send to {name} now", submit: "Send now" },
  done: () => "The waiting events are sent.",
});
