/** `/api/live`: the balance and the running requests of the session, for pages that ask again. */
import Type, { type Static } from "typebox";
import { balanceObject } from "../../accounts/balance-object.ts";
import { closed, count, isoTime, micro, objectFor, text, time } from "../../accounts/json-objects.ts";
import { limitsLeftObject, limitsLeftSchema } from "../../accounts/limits-left-object.ts";
import { balance } from "../../accounts/operator-objects.ts";
import { accountOf, isPerson } from "../../accounts/portal-viewer.ts";
import { balanceOf } from "../../ledger/balance.ts";
import { amountOf } from "../../ledger/grants.ts";
import type { HoldRow } from "../../ledger/rows.ts";
import { pageRowsMax } from "../../store/store.ts";
import { type ApiApp, route } from "../api/app.ts";
import { hasState } from "../api/entity-tag.ts";
import { ReadRate } from "../read-rate.ts";
import { accountStateObject } from "./account.ts";
import type { PortalDependencies } from "./dependencies.ts";
import { sessionOf } from "./sign-in.ts";

const shownRequestsMax = 100;

const runningRequestObject = objectFor<HoldRow>("OwnRunningRequest")({
  id: [text, (hold) => hold.id],
  key: [text, (hold) => hold.key],
  model: [text, (hold) => hold.model],
  started_at: [time, (hold) => isoTime(hold.createdMs)],
  prompt_tokens: [count, (hold) => hold.promptTokens],
  completion_tokens: [
    Type.Integer({ minimum: 0, description: "as of the last checkpoint" }),
    (hold) => hold.completionTokens,
  ],
  held_micro: [micro, (hold) => amountOf(hold.takings)],
});

export const runningRequests = closed({
  data: Type.Array(runningRequestObject.schema),
  more: Type.Integer({ minimum: 0, description: "further requests that are not listed" }),
  journal_seq: Type.Integer({
    minimum: 0,
    description:
      "the newest journal entry of the account: another one after each request, however short it was",
  }),
});

const liveObject = closed({
  balance,
  account: accountStateObject.schema,
  limits: limitsLeftSchema,
  requests: runningRequests,
});
export type PortalLive = Static<typeof liveObject>;

export function liveRoutes(app: ApiApp, { store }: PortalDependencies): void {
  const reads = new ReadRate("account");
  app.get(
    "/api/live",
    route(
      "showLive",
      {
        summary: "Show the balance and the running requests of the session",
        description:
          "Has an entity tag: with `if-none-match`, the response is 304 while nothing has changed. Does not prolong the session.",
        response: { 200: liveObject },
        refusals: ["rate_limit_exceeded"],
      },
      { config: { prolongsSession: false } },
    ),
    async (request, reply) => {
      const session = sessionOf(request);
      const account = accountOf(session);
      reads.count(account);
      // A person sees the whole account.
      const key = isPerson(session) || session.key.portal === "account" ? null : session.key.id;
      if (hasState(request, reply, key ?? "", (await store.accountMark(account, store.times().atMs)) ?? ""))
        return;
      const [snapshot, holds] = await Promise.all([
        store.accountSnapshot(account),
        store.holds({ account, limit: pageRowsMax }),
      ]);
      const view = balanceOf(snapshot);
      const seen = holds.filter((hold) => key === null || hold.key === key);
      const running = seen.toSorted((one, other) => one.createdMs - other.createdMs);
      const shown = running.slice(0, shownRequestsMax);
      return {
        balance: balanceObject(view),
        account: accountStateObject.of(view),
        limits: limitsLeftObject(view, session, store.times().nowMs),
        requests: {
          data: shown.map(runningRequestObject.of),
          more: running.length - shown.length,
          journal_seq: snapshot?.account.seq ?? 0,
        },
      };
    },
  );
}
