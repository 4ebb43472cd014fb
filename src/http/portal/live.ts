/** `/api/live`: the balance and the running requests of the session, as events. */
import Type from "typebox";
import { balanceObject } from "../../accounts/balance-object.ts";
import { closed, count, isoTime, micro, objectFor, text, time } from "../../accounts/json-objects.ts";
import type { LiveAccount, LiveTopic } from "../../accounts/live-accounts.ts";
import { balance } from "../../accounts/operator-objects.ts";
import { Refusal } from "../../errors.ts";
import { heldBy } from "../../ledger/grants.ts";
import type { HoldRow } from "../../ledger/rows.ts";
import { type ApiApp, route } from "../api/app.ts";
import { accountStateObject } from "./account.ts";
import type { PortalDependencies } from "./dependencies.ts";
import { sessionOf } from "./sign-in.ts";

/** Open pages of one account on this node. Others get no live state, and work without it. */
const streamsPerAccountMax = 32;
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
  held_micro: [micro, (hold) => heldBy(hold)],
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
      const { owner, key } = sessionOf(request);
      const { account } = key;
      const isOwn = (topic: LiveTopic) => topic.account === account && topic.owner !== null;
      if (accounts.count(isOwn) >= streamsPerAccountMax) {
        throw new Refusal(
          "concurrency_limit_exceeded",
          `This account has ${streamsPerAccountMax} open pages already. Close one of them.`,
          { retryAfterSeconds: 30 },
        );
      }
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
