/** How operators change the service. Pages bundle this file. */

import * as rules from "../accounts/value-rules.ts";
import { action } from "./action.ts";
import { text } from "./field.ts";

export const applyPlans = action({
  id: "applyPlans",
  title: "Make the plans of this node's configuration current",
  help: "Also applies plans that newer ones have replaced, as a way back. The plans are those of the configuration when the node last read it; reload it first if the file has changed.",
  http: "POST /admin/plans/apply",
  cli: "plans apply",
  role: "operator",
  input: {},
  refuses: ["cannot_reload_now"],
  form: {
    title: "Apply the plans of the configuration",
    intro:
      "Every node uses these plans afterwards, even if newer ones had replaced them. Credits of present windows stay until their next refresh.",
    submit: "Apply the plans",
    isDangerous: true,
  },
  done: () => "The plans of the configuration are in use.",
});

interface RequestStopJson {
  request_id: string;
  stopped: boolean;
}

export const stopRequest = action({
  id: "stopRequest",
  title: "Stop a running request",
  help: "At once if this process answers it, otherwise through the database. Its client gets `request_stopped`, and pays for the tokens so far, as if it had left. A repetition is safe: after the end it is refused with `request_not_found`.",
  http: "POST /admin/requests/{request}/stop",
  cli: "requests stop <request>",
  examples: ["requests stop 019a0c3e-5d1f-7a52-9c3e-8d1f5a529c3e"],
  role: "support",
  input: {
    request: text(rules.note, {
      rule: `the id of a request, ${rules.note.rule}`,
      about: "as requests list shows it, or the x-request-id of the answer",
    }),
  },
  refuses: ["request_not_found"],
  status: 202,
  form: { title: "Stop a running request", submit: "Stop the request", isDangerous: true },
  done: ({ stopped }: RequestStopJson) =>
    stopped ? "The request is stopped." : "Another node stops the request within seconds.",
});

export const previewReload = action({
  id: "previewReload",
  title: "Show what a reload would change",
  help: "Reads and checks the file, and changes nothing. Each setting that differs has its value before and after; of secrets, only that they differ. Plans are compared with those of the database. Models are not loaded, so a reload can still fail.",
  http: "GET /admin/reload",
  role: "operator",
  input: {},
  refuses: ["configuration_invalid"],
});

export const reloadConfiguration = action({
  id: "reloadConfiguration",
  title: "Read the configuration again and apply it",
  help: "Checks everything first, and loads models that are new or changed, which can take minutes. If a part of the configuration cannot be used, nothing changes. Running answers keep their model and price.",
  http: "POST /admin/reload",
  cli: "reload",
  examples: ["reload --dry-run", "reload"],
  role: "operator",
  input: {},
  refuses: ["cannot_reload_now", "configuration_invalid"],
  form: {
    title: "Reload the configuration",
    intro:
      "Reads inkwell.yaml of this node again and applies it. If a part cannot be used, nothing changes. New models are loaded first, which can take minutes. Running answers keep their model and price.",
    submit: "Reload",
  },
  done: () => "The configuration is reloaded.",
});
