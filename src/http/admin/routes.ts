/** All routes below `/admin`. The tags of the OpenAPI document are the names of their groups. */

import { OperatorActions } from "../../accounts/operator-actions.ts";
import { accountActions } from "../../actions/account-runs.ts";
import type { BoundAction } from "../../actions/bind.ts";
import { creditActions } from "../../actions/credit-runs.ts";
import { eventActions } from "../../actions/event-runs.ts";
import { keyActions } from "../../actions/key-runs.ts";
import { linkActions } from "../../actions/link-runs.ts";
import { operatorActions } from "../../actions/operator-runs.ts";
import { peopleActions } from "../../actions/people-runs.ts";
import { usageActions } from "../../actions/usage-runs.ts";
import { nobody } from "../../actors.ts";
import { actionRoutes } from "../api/action-routes.ts";
import type { ApiApp } from "../api/app.ts";
import { documentRoutes } from "../api/openapi.ts";
import { accountLiveRoutes } from "./account-live.ts";
import { chatRoutes } from "./chat.ts";
import type { AdminDependencies } from "./dependencies.ts";
import { draftActions } from "./draft-actions.ts";
import { manyActions } from "./many-accounts.ts";
import { consoleCookieName, senderOf } from "./operator-sign-in.ts";
import { overviewRoutes } from "./overview.ts";
import { refusedBeforeRouting } from "./refusals.ts";
import {
  liveActions,
  planActions,
  requestActions,
  type ServiceContext,
  serviceActions,
} from "./service-actions.ts";
import { sessionRoutes } from "./session.ts";

/** `actions`: those of nobody, which read. */
type AddRoutes = (app: ApiApp, actions: OperatorActions, dependencies: AdminDependencies) => void;

const groups: Record<string, AddRoutes> = {
  accounts: ofLedger({ ...accountActions, ...manyActions }),
  people: ofLedger(peopleActions),
  links: ofLedger(linkActions),
  keys: ofLedger(keyActions),
  credits: ofLedger(creditActions),
  operators: ofLedger(operatorActions),
  usage: ofLedger(usageActions),
  plans: ofService({ ...planActions, ...draftActions }),
  requests: ofService(requestActions),
  events: ofLedger(eventActions),
  live(app, actions, dependencies) {
    ofService(liveActions)(app, actions, dependencies);
    accountLiveRoutes(app, actions, dependencies);
  },
  overview: overviewRoutes,
  chat: chatRoutes,
  service: ofService(serviceActions),
  session: sessionRoutes,
};

function ofLedger(bound: Record<string, BoundAction<OperatorActions>>): AddRoutes {
  return (app, actions) => actionRoutes(app, bound, (request) => actions.as(senderOf(request)));
}

function ofService(bound: Record<string, BoundAction<ServiceContext>>): AddRoutes {
  return (app, actions, here) =>
    actionRoutes(app, bound, (request) => {
      const own = actions.as(senderOf(request));
      return { timezone: own.timezone, role: own.role, actions: own, here };
    });
}

export function adminRoutes(app: ApiApp, dependencies: AdminDependencies, version: string): void {
  const actions = new OperatorActions({ ...dependencies, actor: nobody });
  const api = {
    title: "Inkwell operator API",
    description: "Accounts, keys, credits and receipts. Every change is safe to repeat.",
    version,
    cookieName: consoleCookieName,
    urlSetting: "operator.url",
    acceptsToken: true,
    groups,
    refusedBeforeRouting,
  };
  documentRoutes(app, api, (routes, group) => routes(group, actions, dependencies));
}
