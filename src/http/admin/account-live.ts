/**
 * `/admin/accounts/{account}/live`: the balance of an account and its running requests, for pages
 * that ask again.
 *
 * Tokens of requests that this process answers come from memory, those of others from the
 * database.
 */
import Type from "typebox";
import { balanceObject, refills, refillsOf } from "../../accounts/balance-object.ts";
import { count, micro, objectFor } from "../../accounts/json-objects.ts";
import type { OperatorActions } from "../../accounts/operator-actions.ts";
import { balance } from "../../accounts/operator-objects.ts";
import { spendingCaps, spendingCapsObject } from "../../accounts/spending-caps-object.ts";
import { bindFor } from "../../actions/bind.ts";
import { showAccountLive } from "../../actions/views.ts";
import type { BalanceView } from "../../ledger/balance.ts";
import type { HoldRow } from "../../ledger/rows.ts";
import { fieldOf } from "../../objects.ts";
import { pageRowsMax } from "../../store/store.ts";
import { actionRoute } from "../api/action-routes.ts";
import type { ApiApp } from "../api/app.ts";
import { hasState } from "../api/entity-tag.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { type RunningJson, requestObject, runningObjects } from "./request-object.ts";

const requestsMax = 20;

interface AccountNow {
  balance: BalanceView;
  /** Of this process. */
  own: readonly RunningJson[];
  /** Of other processes. */
  elsewhere: readonly HoldRow[];
}

export const accountLiveObject = objectFor<AccountNow>("AccountLive")({
  balance: [balance, (now) => balanceObject(now.balance)],
  refills: [refills, (now) => refillsOf(now.balance)],
  spending_caps: [spendingCaps, (now) => spendingCapsObject(now.balance.caps)],
  held_micro: [micro, (now) => now.balance.heldMicro],
  running: [count, (now) => now.own.length + now.elsewhere.length],
  requests: [
    Type.Array(requestObject.schema, { description: `the ${requestsMax} oldest of all processes` }),
    (now) => runningObjects(now.own, now.elsewhere).slice(0, requestsMax),
  ],
});

const bind = bindFor<OperatorActions>();

export function accountLiveRoutes(
  app: ApiApp,
  actions: OperatorActions,
  { requests, reads }: Pick<AdminDependencies, "requests" | "reads">,
): void {
  const ownOf = async (id: string) => (await requests()).filter(({ account }) => account === id);

  const shown = bind(showAccountLive, accountLiveObject.schema, async (_, { account }) => {
    const [view, holds] = await Promise.all([
      actions.balance(account),
      actions.holds({ account, limit: pageRowsMax }),
    ]);
    const own = await ownOf(account);
    const ids = new Set(own.map((request) => request.request_id));
    return accountLiveObject.of({ balance: view, own, elsewhere: holds.filter(({ id }) => !ids.has(id)) });
  });
  actionRoute(app, shown, () => actions, {
    config: { prolongsSession: false },
    preHandler: async (request, reply) => {
      if (request.session !== null) reads.count(request.session.hash);
      const { store } = actions;
      const account = String(fieldOf(request.params, "account"));
      const mark = await store.accountMark(account, store.times().atMs);
      const running = JSON.stringify(runningObjects(await ownOf(account), []));
      if (mark !== null && hasState(request, reply, mark, running)) await reply.send();
    },
  });
}
