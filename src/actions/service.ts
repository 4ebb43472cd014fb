/** How operators change the service. Pages bundle this file. */
import type { AcceptedClockJson } from "../accounts/operator-objects.ts";
import * as rules from "../accounts/value-rules.ts";
import { shortTime } from "../units.ts";
import { action } from "./action.ts";
import { moment, text } from "./field.ts";

export const applyPlans = action({
  id: "applyPlans",
  title: "Make the plans of this node's configuration current",
  help: "Also applies plans that newer ones have replaced, as a way back. The plans are those of the configuration when the node last read it; reload it first if the file has changed.",
  http: "POST /admin/plans/apply",
  role: "operator",
  input: {},
  refuses: ["cannot_reload_now"],
});

export const stopRequest = action({
  id: "stopRequest",
  title: "Stop a running request",
  help: "At once if this process answers it, otherwise through the database. Its client gets `request_stopped`, and pays for the tokens so far, as if it had left. A repetition is safe: after the end it is refused with `request_not_found`.",
  http: "POST /admin/requests/{request}/stop",
  role: "support",
  input: { request: text(rules.note, { rule: `the id of a request, ${rules.note.rule}` }) },
  refuses: ["request_not_found"],
  status: 202,
});

export const reloadConfiguration = action({
  id: "reloadConfiguration",
  title: "Read the configuration again and apply it",
  help: "Checks everything first, and loads models that are new or changed, which can take minutes. If a part of the configuration cannot be used, nothing changes. Running answers keep their model and price.",
  http: "POST /admin/reload",
  role: "operator",
  input: {},
  refuses: ["cannot_reload_now", "configuration_invalid"],
});

export const acceptClock = action({
  id: "acceptClock",
  title: "Accept the present reading of the clock",
  help: "Ends the time in which the ledger does not believe its clock. `time` is the true time, which has to be within a minute of the clock. `by` names the operator in the record. Other processes follow within 5 s.",
  http: "POST /admin/clock/accept",
  cli: "clock accept",
  role: "operator",
  input: {
    by: text(rules.note, { label: "By", option: "--by <name>", about: "who accepts it, for the record" }),
    time: moment({ label: "True time (UTC)", option: "--time <time>", about: "the true time" }),
  },
  refuses: ["clock_trusted", "clock_differs"],
  done: ({ clock_at }: AcceptedClockJson) => `The clock is accepted as of ${shortTime(clock_at)}.`,
});

export const startAudit = action({
  id: "startAudit",
  title: "Start an audit of all rows of the ledger",
  help: "Responds at once. The audit runs in the background and takes minutes on a large ledger. If an audit already runs in any process on this database, no second one starts, so a repetition is safe. Requests do not wait for the audit. On PostgreSQL, requests of a busy account become slower while it runs.",
  http: "POST /admin/audit",
  role: "operator",
  input: {},
  refuses: [],
  status: 202,
});
