/** A running chat request as an object: of this process, or as another one last recorded it. */
import Type, { type Static } from "typebox";
import { count, isoTime, micro, objectFor, orNull, text, time } from "../../accounts/json-objects.ts";
import { amountOf } from "../../ledger/grants.ts";
import type { HoldRow } from "../../ledger/rows.ts";
import type { RequestRecord } from "../../telemetry/request-record.ts";

const here = Type.Boolean({
  description: "false: another process answers it. Tokens and credits are those of its last checkpoint",
});

export const requestObject = objectFor<RequestRecord>("RunningRequest")({
  request_id: [text, (record) => record.requestId],
  account: [orNull(text), ({ caller }) => caller?.accountId ?? null],
  key: [orNull(text), ({ caller }) => caller?.key.id ?? null],
  model: [orNull(text), (record) => record.model],
  stream: [
    orNull(Type.Boolean({ description: "unknown if another process answers the request" })),
    (record) => record.streamed,
  ],
  state: [
    Type.Enum(["waiting", "running"], {
      description: "waiting: for the count of its prompt, its credits or a place at the model",
    }),
    ({ work }) => (work?.generation.started ? "running" : "waiting"),
  ],
  since: [time, (record) => isoTime(record.startedAtMs)],
  prompt_tokens: [orNull(count), ({ work }) => work?.promptTokens ?? null],
  completion_tokens: [count, ({ work }) => work?.generation.usage.completionTokens ?? 0],
  held_micro: [micro, ({ work }) => work?.hold.heldMicro ?? 0],
  here: [here, () => true],
});

export type RunningJson = Static<typeof requestObject.schema>;

/** A request that another process answers, as an object of the same form. */
function objectOfHold(hold: HoldRow): RunningJson {
  return {
    request_id: hold.id,
    account: hold.account,
    key: hold.key,
    model: hold.model,
    stream: null,
    state: "running",
    since: isoTime(hold.createdMs),
    // A hold has none before its first checkpoint.
    prompt_tokens: hold.promptTokens || null,
    completion_tokens: hold.completionTokens,
    held_micro: amountOf(hold.takings),
    here: false,
  };
}

/** Returns the requests of this service and those of other nodes as one list, oldest first. */
export function runningObjects(own: readonly RunningJson[], elsewhere: readonly HoldRow[]): RunningJson[] {
  const all = [...own, ...elsewhere.map(objectOfHold)];
  return all.toSorted((one, other) => Date.parse(one.since) - Date.parse(other.since));
}
