/**
 * `/admin/accounts/{account}/live`: the balance of an account and its running requests, once and
 * as a stream.
 *
 * Tokens of requests that this process answers come from memory, those of others from the
 * database.
 */
import Type from "typebox";
import { balanceObject, refills, refillsOf } from "../../accounts/balance-object.ts";
import { closed, count, micro, objectFor } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { balance } from "../../accounts/operator-objects.ts";
import * as rules from "../../accounts/value-rules.ts";
import { bindFor } from "../../actions/bind.ts";
import { showAccountLive } from "../../actions/views.ts";
import type { BalanceView } from "../../ledger/balance.ts";
import type { HoldRow } from "../../ledger/rows.ts";
import { pageRowsMax } from "../../store/store.ts";
import type { RequestRecord } from "../../telemetry/request-record.ts";
import { actionRoute } from "../api/action-routes.ts";
import { type ApiApp, route } from "../api/app.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { requestObject, runningObjects } from "./request-object.ts";

const requestsMax = 20;

interface AccountNow {
  balance: BalanceView;
  /** Of this process. */
  records: readonly RequestRecord[];
  /** Of other processes. */
  elsewhere: readonly HoldRow[];
}

export const accountLiveObject = objectFor<AccountNow>("AccountLive")({
  balance: [balance, (now) => balanceObject(now.balance)],
  refills: [refills, (now) => refillsOf(now.balance)],
  held_micro: [micro, (now) => now.balance.heldMicro],
  running: [count, (now) => now.records.length + now.elsewhere.length],
  requests: [
    Type.Array(requestObject.schema, { description: `the ${requestsMax} oldest of all processes` }),
    (now) => runningObjects(now.records, now.elsewhere).slice(0, requestsMax),
  ],
});

const bind = bindFor<OperatorActions>();
const accountPath = closed({
  account: Type.String({ pattern: rules.name.pattern.source, description: rules.name.rule }),
});

export function accountLiveRoutes(
  app: ApiApp,
  actions: OperatorActions,
  { requests, streams, accounts }: AdminDependencies,
): void {
  const config = { prolongsSession: false };

  function objectOf(account: string, view: BalanceView, holds: readonly HoldRow[]) {
    const records = requests.list().filter(({ caller }) => caller?.accountId === account);
    const own = new Set(records.map(({ requestId }) => requestId));
    const elsewhere = holds.filter(({ id }) => !own.has(id));
    return accountLiveObject.of({ balance: view, records, elsewhere });
  }

  async function objectNow(account: string) {
    const [view, holds] = await Promise.all([
      actions.balance(account),
      actions.holds({ account, limit: pageRowsMax }),
    ]);
    return objectOf(account, view, holds);
  }

  const shown = bind(showAccountLive, accountLiveObject.schema, (_, { account }) => objectNow(account));
  actionRoute(app, shown, () => actions, { config });

  app.get(
    "/admin/accounts/:account/live/stream",
    route(
      "streamAccountLive",
      {
        role: "viewer",
        summary: "Stream the balance of an account and its running requests as server-sent events",
        description:
          "The `data` of each event `message` is the object of `GET /admin/accounts/{account}/live`: first as it is, then after each change, at most once a second. A session has four streams at most.",
        params: accountPath,
        response: { 200: accountLiveObject.schema },
        events: true,
        refusals: ["account_not_found", "concurrency_limit_exceeded"],
      },
      { config, exposeHeadRoute: false },
    ),
    async (request, reply) => {
      const { account } = request.params;
      // An account that is missing or invalid is refused before the first byte.
      await actions.balance(account);
      streams.take(request, reply);
      accounts.follow(reply, { account, owner: null }, (stream, live) =>
        stream.send("message", JSON.stringify(objectOf(account, live.balance, live.requests))),
      );
    },
  );
}
