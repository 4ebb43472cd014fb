/** Models and recent errors of this process, from its memory, as objects. */
import Type, { type Static } from "typebox";
import { closed, count, isoTime, micro, objectFor, orNull, text, time } from "../../accounts/json-objects.ts";
import type { Model } from "../../chat/catalog.ts";
import type { EngineServer } from "../../chat/engine.ts";
import type { Activity, Percentiles } from "../../telemetry/recent-activity.ts";
import type { RecentError } from "../../telemetry/recent-errors.ts";
import { modelFields } from "../api/model-fields.ts";

const load = closed({ running: count, waiting: count, paused: count });
const amount = Type.Number({ minimum: 0 });

function rounded(value: number): number {
  return Number(value.toPrecision(3));
}

const firstToken = closed({ median: amount, p95: amount });
const speed = closed({ median: amount, p5: amount });

export const activityObject = objectFor<Activity>("Activity")({
  requests: [count, (sums) => sums.requests],
  errors: [
    Type.Integer({ minimum: 0, description: "requests that the service failed on" }),
    (sums) => sums.errors,
  ],
  refused: [
    Type.Integer({ minimum: 0, description: "requests that were refused for another reason" }),
    (sums) => sums.refused,
  ],
  prompt_tokens: [count, (sums) => sums.promptTokens],
  completion_tokens: [count, (sums) => sums.completionTokens],
  cost_micro: [micro, (sums) => sums.costMicro],
  first_token_ms: [orNull(firstToken), ({ firstTokenMs }) => p95Of(firstTokenMs)],
  tokens_per_second: [orNull(speed), ({ tokensPerSecond }) => p5Of(tokensPerSecond)],
});

function p95Of(found: Percentiles | null) {
  return found && { median: rounded(found.median), p95: rounded(found.worst5) };
}

function p5Of(found: Percentiles | null) {
  return found && { median: rounded(found.median), p5: rounded(found.worst5) };
}

const serverObject = objectFor<EngineServer>("ModelServer")({
  url: [text, (server) => server.url],
  state: [
    Type.Enum(["ok", "down", "resting", "out_of_credit"], {
      description:
        "down: it does not respond, or with a 5xx. resting: it kept failing and gets no requests for a while. out_of_credit: the operator's account at the provider is empty",
    }),
    (server) => server.state,
  ],
  since: [time, (server) => isoTime(server.sinceMs)],
  running: [count, (server) => server.running],
  last_error: [
    orNull(closed({ at: time, message: text })),
    ({ lastError }) => lastError && { at: isoTime(lastError.atMs), message: lastError.message },
  ],
  paused_accounts: [
    Type.Integer({ minimum: 0, description: "accounts whose requests keep failing there and are not sent" }),
    (server) => server.pausedAccounts,
  ],
  notices: [
    Type.Array(closed({ kind: text, at: time, message: text }), {
      description: "what was odd about its answers in the last hour",
    }),
    ({ notices }) => notices.map(({ kind, atMs, message }) => ({ kind, at: isoTime(atMs), message })),
  ],
});

interface LiveModel extends Model {
  lastDay: Activity;
}

export const modelObject = objectFor<LiveModel>("Model")({
  ...modelFields,
  load: [
    orNull(load),
    ({ engine }) => {
      const now = engine.load?.() ?? null;
      return now && { running: now.running, waiting: now.waiting, paused: now.paused ?? 0 };
    },
  ],
  servers: [
    orNull(Type.Array(serverObject.schema)),
    ({ engine }) => engine.servers?.()?.map(serverObject.of) ?? null,
  ],
  warnings: [
    Type.Array(text, { description: "what was odd when it was started" }),
    ({ engine }) => [...(engine.warnings ?? [])],
  ],
  last_day: [activityObject.schema, ({ lastDay }) => activityObject.of(lastDay)],
});

export type ModelJson = Static<typeof modelObject.schema>;

export const errorObject = objectFor<RecentError>("RecentError")({
  level: [Type.Enum(["warn", "error"]), (error) => error.level],
  message: [text, (error) => error.message],
  code: [orNull(text), (error) => error.code],
  model: [orNull(text), (error) => error.model],
  request_id: [orNull(text), (error) => error.requestId],
  count: [count, (error) => error.count],
  first_at: [time, (error) => isoTime(error.firstMs)],
  last_at: [time, (error) => isoTime(error.lastMs)],
});
