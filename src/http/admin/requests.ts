/** `/admin/requests`: the chat requests that this process answers now, and stopping one. */
import Type, { type Static } from "typebox";
import { closed, count, isoTime, micro, objectFor, orNull, text, time } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import type { RequestStop } from "../../accounts/request-stops.ts";
import { heldBy } from "../../ledger/grants.ts";
import type { HoldRow } from "../../ledger/rows.ts";
import type { RequestRecord } from "../../telemetry/request-record.ts";
import { type ApiApp, route } from "../api/app.ts";
import { pageOf } from "../api/paging.ts";
import * as schema from "../api/schemas.ts";
import type { AdminDependencies } from "./dependencies.ts";

const here = Type.Boolean({
  description: "false: another process answers it. Tokens and credits are those of its last checkpoint",
});

export const requestObject = objectFor<RequestRecord>("RunningRequest")({
  request_id: [text, (record) => record.requestId],
  account: [orNull(text), ({ caller }) => caller?.accountId ?? null],
  key: [orNull(text), ({ caller }) => caller?.keyId ?? null],
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

/** A request that another process answers, as an object of the same form. */
function objectOfHold(hold: HoldRow): Static<typeof requestObject.schema> {
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
    held_micro: heldBy(hold),
    here: false,
  };
}

/** Returns the requests of this process and those of other processes as one list, oldest first. */
export function runningObjects(
  records: readonly RequestRecord[],
  elsewhere: readonly HoldRow[],
): Static<typeof requestObject.schema>[] {
  const all = [...records.map(requestObject.of), ...elsewhere.map(objectOfHold)];
  return all.toSorted((one, other) => Date.parse(one.since) - Date.parse(other.since));
}

const stopObject = objectFor<RequestStop>("RequestStop")({
  request_id: [text, (stop) => stop.requestId],
  stopped: [
    Type.Boolean({
      description:
        "true: this process has stopped it; false: another process answers it, and stops it within a few seconds",
    }),
    (stop) => stop.isStopped,
  ],
});

export function requestRoutes(
  app: ApiApp,
  _actions: OperatorActions,
  { requests, stops }: AdminDependencies,
): void {
  app.get(
    "/admin/requests",
    route("listRequests", {
      summary: "List the chat requests that this process answers now, oldest first",
      description:
        "`GET /admin/holds` lists the requests of all processes with their held credits, as of their last checkpoint.",
      ...schema.listByAccount(requestObject.schema),
    }),
    async ({ query: { limit, after = "", account } }) => {
      const found = requests
        .list()
        .filter(
          ({ requestId, caller }) => requestId > after && [undefined, caller?.accountId].includes(account),
        )
        .toSorted((a, b) => (a.requestId < b.requestId ? -1 : 1));
      return pageOf(
        limit,
        async (rows) => found.slice(0, rows),
        requestObject.of,
        ({ requestId }) => requestId,
      );
    },
  );

  app.post(
    "/admin/requests/:request/stop",
    route("stopRequest", {
      summary: "Stop a running request",
      description:
        "At once if this process answers it, otherwise through the database. Its client gets `request_stopped`, and pays for the tokens so far, as if it had left. A repetition is safe: after the end it is refused with `request_not_found`.",
      params: closed({ request: schema.noteThatIs("the id of a request") }),
      response: { 202: stopObject.schema },
      refusals: ["request_not_found"],
    }),
    async ({ params }, reply) => reply.code(202).send(stopObject.of(await stops.stopRequest(params.request))),
  );
}
