/** `/api/live`: the balance and the running requests of the session, as events. */
import Type from "typebox";
import { balanceObject } from "../../accounts/balance-object.ts";
import { closed, count, isoTime, micro, objectFor, text, time } from "../../accounts/json-objects.ts";
import type { LiveAccount } from "../../accounts/live-accounts.ts";
import { balance } from "../../accounts/operator-objects.ts";
import { accountOf, isPerson } from "../../accounts/portal-viewer.ts";
import { Refusal } from "../../errors.ts";
import { amountOf } from "../../ledger/grants.ts";
import type { HoldRow } from "../../ledger/rows.ts";
import { limits } from "../../limits/limits.ts";
import { Slots } from "../../limits/slots.ts";
import { type ApiApp, route } from "../api/app.ts";
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

export function liveRoutes(app: ApiApp, { accounts }: PortalDependencies): void {
  const config = { prolongsSession: false };
  // Further pages get no live state, and work without it.
  const streams = new Slots(limits.portalStreams);
  app.get(
    "/api/live",
    route(
      "showLive",
      {
        summary: "Follow the balance and the running requests of the session, as server-sent events",
        description:
          "Event `balance` has the balance, event `account` the state of the account and its refills, event `requests` the running requests: first as they are, then after each change, at most once a second. The stream does not prolong the session, and ends with it.",
        response: { 200: Type.Union([balance, accountStateObject.schema, runningRequests]) },
        events: true,
        refusals: ["concurrency_limit_exceeded"],
      },
      { config, exposeHeadRoute: false },
    ),
    async (request, reply) => {
      const session = sessionOf(request);
      const account = accountOf(session);
      // A person sees the whole account, as long as the session lasts.
      const owner = isPerson(session) ? null : session.owner;
      // The client has left while it was authenticated.
      if (reply.raw.destroyed) return;
      if (!streams.fits(account)) {
        throw new Refusal(
          "concurrency_limit_exceeded",
          `This account has ${streams.max} open pages already. Close one of them.`,
          { retryAfterSeconds: 30 },
        );
      }
      streams.take(account);
      reply.raw.once("close", () => streams.release(account));
      accounts.follow(reply, { account, owner }, (stream, live) => {
        stream.send("balance", JSON.stringify(balanceObject(live.balance)));
        stream.send("account", JSON.stringify(accountStateObject.of(live.balance)));
        stream.send("requests", JSON.stringify(requestsObject(live)));
      });
    },
  );
}

function requestsObject({ requests, seq }: LiveAccount) {
  const shown = requests.slice(0, shownRequestsMax);
  return {
    data: shown.map(runningRequestObject.of),
    more: requests.length - shown.length,
    journal_seq: seq,
  };
}
