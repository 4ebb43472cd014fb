/** The object of `/admin/overview`: its schema, and how it is made of a snapshot. */
import Type, { type Static } from "typebox";
import type { InvitationSettings } from "../../accounts/invitations.ts";
import {
  closed,
  count,
  fieldsFor,
  isoTime,
  micro,
  objectFor,
  orNull,
  text,
  time,
} from "../../accounts/json-objects.ts";
import type { AccountOfList } from "../../accounts/operator-actions.ts";
import { isoHour } from "../../accounts/usage-hours.ts";
import { clockPlaces } from "../../ledger/clock.ts";
import type { HoldRow } from "../../ledger/rows.ts";
import type { NodeView } from "../../store/nodes.ts";
import { dayOf } from "../../store/usage-days.ts";
import type { Hour, UsageHour } from "../../store/usage-hours.ts";
import { creditsIn, hourMs } from "../../units.ts";
import { type Health, storeStates } from "./dependencies.ts";
import { jobObject } from "./job-object.ts";
import { activityObject, errorObject, modelObject } from "./live-objects.ts";
import type { LiveState } from "./live-state.ts";
import {
  type Attention,
  attentionPages,
  type DatabaseView,
  hoursShown,
  type LowBalance,
  nearAccountsMax,
} from "./overview-database.ts";
import { type RunningJson, requestObject, runningObjects } from "./request-object.ts";

/** Rows of the lists. */
const requestsMax = 20;
export const errorsMax = 5;

/** The first steps of a new service. A step that was done stays done. */
const firstSteps = ["model", "plan", "account", "key", "request"] as const;

/** `jobs`: those that fail or hang. */
export interface Snapshot extends Health, LiveState {
  attention: readonly Attention[];
  steps: Readonly<Record<(typeof firstSteps)[number], boolean>> | null;
  urls: { api: string; portal: string | null };
  invitations: InvitationSettings;
  nodes: readonly NodeView[];
  requests: readonly RunningJson[];
  /** Of other processes. */
  elsewhere: readonly HoldRow[];
  database: DatabaseView | null;
  near: LowBalance | null;
}

type Sums = Pick<UsageHour, "requests" | "promptTokens" | "completionTokens" | "costMicro">;

/** Late charges can correct counts downwards. */
const tokens = Type.Integer();
const sumsFields = fieldsFor<Sums>()({
  requests: [count, (sums) => sums.requests],
  prompt_tokens: [tokens, (sums) => sums.promptTokens],
  completion_tokens: [tokens, (sums) => sums.completionTokens],
  cost_micro: [micro, (sums) => sums.costMicro],
});
const sumsObject = objectFor<Sums>("OverviewSums")(sumsFields);
const hourObject = objectFor<Sums & { hour: Hour }>("OverviewHour")({
  hour: [time, ({ hour }) => isoHour(hour)],
  ...sumsFields,
});

const usageObject = objectFor<DatabaseView>("OverviewUsage")({
  hour: [
    Type.String({ format: "date-time", description: "start of the present hour" }),
    (view) => isoHour(viewHourOf(view)),
  ],
  hours: [
    Type.Array(hourObject.schema, {
      description: `the last ${hoursShown} hours, without those in which no request ended`,
    }),
    (view) => view.hours.filter(({ hour }) => hour > viewHourOf(view) - hoursShown).map(hourObject.of),
  ],
  this_hour: [sumsObject.schema, (view) => sumsObject.of(sumFrom(view, viewHourOf(view)))],
  today: [
    Type.Object(sumsObject.schema.properties, {
      additionalProperties: false,
      description: "of the hours that began today, in the zone of the configuration",
    }),
    (view) => sumsObject.of(sumFrom(view, firstHourOfDay(view))),
  ],
});

const nearAccountObject = objectFor<AccountOfList>("OverviewAccount")({
  id: [text, ({ id }) => id],
  plan: [text, ({ plan }) => plan],
  credits: [orNull(count), ({ balance }) => balance && creditsLeft(balance)],
});

const nearObject = objectFor<LowBalance>("OverviewLowBalance")({
  at: [time, ({ atMs }) => isoTime(atMs)],
  accounts: [
    Type.Array(nearAccountObject.schema, { description: `the ${nearAccountsMax} with the fewest credits` }),
    ({ accounts }) => accounts.map(nearAccountObject.of),
  ],
});

const attentionObject = objectFor<Attention>("Attention")({
  text: [text, ({ text }) => text],
  page: [Type.Enum([...attentionPages], { description: "of the console" }), ({ page }) => page],
});

const done = Type.Boolean();

export const overviewObject = objectFor<Snapshot>("Overview")({
  attention: [
    Type.Array(attentionObject.schema, {
      description:
        "what needs an operator: the warnings of /readyz, jobs, receivers, mail, invitations, the audit",
    }),
    ({ attention }) => attention.map(attentionObject.of),
  ],
  first_steps: [
    orNull(closed({ model: done, plan: done, account: done, key: done, request: done })),
    ({ steps }) => steps && { ...steps },
  ],
  links: [
    closed({
      api: Type.String({ description: "`listen.url`, or the address on this machine" }),
      portal: orNull(text),
      invitations: Type.Enum(["none", "link", "mail"], { description: "how they can be given out" }),
    }),
    ({ urls, invitations: { portalUrl, send } }) => {
      const invitations = portalUrl === null ? "none" : send === null ? "link" : "mail";
      return { ...urls, invitations } as const;
    },
  ],
  health: [
    closed({
      ready: Type.Boolean({ description: "as in /readyz" }),
      store: Type.Enum([...storeStates], { description: "as in /readyz" }),
      clock: Type.Enum([...clockPlaces], { description: "as in /readyz" }),
      draining: Type.Boolean({ description: "true while the service stops" }),
      warnings: Type.Array(text),
      jobs: Type.Array(jobObject.schema, { description: "jobs of this process that fail or hang" }),
      nodes: Type.Integer({ minimum: 0, description: "processes on the database" }),
      node: orNull(Type.String({ description: "id of this process" })),
    }),
    ({ ready, store, clock, draining, warnings, jobs, nodes, node }) => {
      const failing = jobs.map(jobObject.of);
      const shown = { ready, store, clock, draining, warnings, jobs: failing, nodes: nodes.length };
      return { ...shown, node: node || null };
    },
  ],
  running: [
    closed({
      running: Type.Integer({ minimum: 0, description: "on this process" }),
      waiting: Type.Integer({ minimum: 0, description: "on this process" }),
      elsewhere: Type.Integer({ minimum: 0, description: "on other processes, at most 500" }),
      requests: Type.Array(requestObject.schema, {
        description: `the ${requestsMax} oldest of all processes`,
      }),
    }),
    ({ requests, elsewhere }) => {
      const running = requests.filter(({ state }) => state === "running").length;
      const oldest = runningObjects(requests, elsewhere).slice(0, requestsMax);
      const waiting = requests.length - running;
      return { running, waiting, elsewhere: elsewhere.length, requests: oldest };
    },
  ],
  usage: [orNull(usageObject.schema), ({ database }) => database && usageObject.of(database)],
  low_balance: [orNull(nearObject.schema), ({ near }) => near && nearObject.of(near)],
  models: [Type.Array(modelObject.schema), ({ models }) => models],
  last_hour: [activityObject.schema, ({ lastHour }) => activityObject.of(lastHour)],
  last_day: [activityObject.schema, ({ lastDay }) => activityObject.of(lastDay)],
  errors: [
    Type.Array(errorObject.schema, { description: `the last ${errorsMax} of this process` }),
    ({ errors }) => errors.map(errorObject.of),
  ],
});

export type Overview = Static<typeof overviewObject.schema>;

function viewHourOf({ atMs }: DatabaseView): Hour {
  return Math.floor(atMs / hourMs);
}

function firstHourOfDay(view: DatabaseView): Hour {
  const dayOfHour = (hour: Hour) => dayOf(hour * hourMs, view.timezone);
  const present = viewHourOf(view);
  let first = present;
  while (dayOfHour(first - 1) === dayOfHour(present)) first -= 1;
  return first;
}

function sumFrom({ hours }: DatabaseView, from: Hour): Sums {
  const sums = { requests: 0, promptTokens: 0, completionTokens: 0, costMicro: 0 };
  for (const each of hours) {
    if (each.hour < from) continue;
    sums.requests += each.requests;
    sums.promptTokens += each.promptTokens;
    sums.completionTokens += each.completionTokens;
    sums.costMicro += each.costMicro;
  }
  return sums;
}

/** As the balance shows them: each bucket is rounded down. */
function creditsLeft({ base, overage, additionalMicro }: NonNullable<AccountOfList["balance"]>): number {
  return creditsIn(base.remainingMicro) + creditsIn(overage.remainingMicro) + creditsIn(additionalMicro);
}
