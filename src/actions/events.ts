/** Changes of events and their receivers by operators. Pages bundle this file. */
import * as rules from "../accounts/value-rules.ts";
import { action } from "./action.ts";
import { moment, text } from "./field.ts";

export const eventEndpoint = text(rules.name, {
  label: "Endpoint",
  about: "as events endpoints shows it",
  rule: "the name of an endpoint in the configuration, or mail",
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
    endpoint: eventEndpoint,
    from: moment({
      day: "start",
      label: "From (UTC)",
      option: "--from <time>",
      about: "events from this time on",
    }),
    to: moment({
      day: "start",
      label: "Until (UTC)",
      option: "--to <time>",
      about: "events before this time",
    }),
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
  input: { endpoint: eventEndpoint },
  refuses: ["endpoint_not_found"],
  form: { title: "Send to {name} now", submit: "Send now" },
  done: () => "The waiting events are sent.",
});
