/** Changes of events and their receivers by operators. Pages bundle this file. */
import * as rules from "../accounts/value-rules.ts";
import { action } from "./action.ts";
import { optionally, text } from "./field.ts";

export const eventEndpoint = text(rules.name, {
  label: "Endpoint",
  about: "as events endpoints shows it",
  rule: "the name of an endpoint in the configuration, or mail",
});

export const sendEvents = action({
  id: "sendEvents",
  title: "Send events to an endpoint again",
  help: "Without `event`: those that are dead, and those that wait for their next attempt. With it: one event, also if it was delivered. They keep their ids, so a receiver that remembers ids ignores what it has.",
  http: "POST /admin/events/endpoints/{endpoint}/send",
  cli: "events send <endpoint>",
  examples: ["events send billing", "events send billing --event evt_3f0c7a1d5e9b4c2a8d6f1e0b7c9a2d4f"],
  role: "operator",
  input: {
    endpoint: eventEndpoint,
    event: optionally.text(rules.event, {
      label: "Id of one event",
      option: "--event <id>",
      about: "one event, as events deliveries shows it",
      hint: "Without it: all dead events, and all that wait for their next attempt.",
    }),
  },
  refuses: ["endpoint_not_found", "event_not_found", "list_too_slow"],
  form: {
    title: "Send events to {name} again",
    intro: "They keep their ids. A receiver that remembers ids ignores the events that it has.",
    submit: "Send again",
  },
  done: ({ events }: { events: number }) =>
    `${events === 1 ? "1 event is" : `${events} events are`} sent again.`,
});
