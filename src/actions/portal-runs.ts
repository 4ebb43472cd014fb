/** How the service does what the holder of a key does in the portal. */

import Type from "typebox";
import { closed, text } from "../accounts/json-objects.ts";
import { keyObject, newKeyObject, ownMailObject, usageObject } from "../accounts/operator-objects.ts";
import type { PortalActions } from "../accounts/portal-actions.ts";
import type { Viewer } from "../accounts/portal-viewer.ts";
import { refusedRequestObject } from "../accounts/refused-requests.ts";
import { usageHoursObject, usageHoursSchema } from "../accounts/usage-hours.ts";
import { usageReportSchema } from "../accounts/usage-sums.ts";
import type { Role } from "../actors.ts";
import { action, variantOf } from "./action.ts";
import { bindFor } from "./bind.ts";
import { Created } from "./created.ts";
import { pageOfKeys } from "./key-runs.ts";
import { pageFields } from "./page-fields.ts";
import { afterSeqIn, pageIn, pageOf, pageSchema } from "./pages.ts";
import {
  changeOwnKey,
  changeOwnMail,
  makeOwnKey,
  revokeOwnKey,
  rotateOwnKey,
  stopOwnRequest,
} from "./portal.ts";
import { periodIn, sumsIn } from "./usage-runs.ts";
import * as views from "./views.ts";

export interface PortalContext {
  timezone: string;
  role: Role;
  actions: PortalActions;
  /** The key or the person of the session, and the account. */
  session: Viewer;
}

const bind = bindFor<PortalContext>();
const role = "holder";

const listOwnKeys = variantOf(views.listKeys, {
  title: "List the keys that the session may see, with ended ones, in the order of their creation",
  http: "GET /api/keys",
  role,
  input: pageFields,
});

export const ownKeyActions = {
  listKeys: bind(listOwnKeys, pageSchema(keyObject.schema), async ({ actions, session }, input) =>
    pageOfKeys(input, (after, most) => actions.keys(session, after, most)),
  ),
  makeKey: bind(
    makeOwnKey,
    newKeyObject.schema,
    async ({ actions, session }, { operationId, ...settings }) => {
      const { key, row } = await actions.createKey(session, operationId, settings);
      const made = newKeyObject.of({ key, ...row });
      return key === null ? made : new Created(made);
    },
  ),
  changeKey: bind(
    changeOwnKey,
    keyObject.schema,
    async ({ actions, session }, { key, operationId, ...change }) =>
      keyObject.of(await actions.changeKey(session, key, operationId, change)),
  ),
};

/** Their responses arrive even if the change ends the session. */
export const lastKeyActions = {
  rotateKey: bind(
    rotateOwnKey,
    newKeyObject.schema,
    async ({ actions, session }, { key, operationId, overlap }) => {
      const rotated = await actions.rotateKey(session, key, operationId, overlap);
      return newKeyObject.of({ key: rotated.key, ...rotated.row });
    },
  ),
  revokeKey: bind(revokeOwnKey, keyObject.schema, async ({ actions, session }, { key }) =>
    keyObject.of(await actions.revokeKey(session, key)),
  ),
};

export const ownAccountActions = {
  changeMail: bind(changeOwnMail, ownMailObject.schema, async ({ actions, session }, choices) =>
    ownMailObject.of({ contact: await actions.changeMail(session, choices) }),
  ),
};

export const ownRequestActions = {
  stopRequest: bind(
    stopOwnRequest,
    closed({ id: text, outcome: Type.Enum(["stopped", "ended"]) }),
    async ({ actions, session }, { request }) => {
      const { requestId, outcome } = await actions.stopRequest(session, request);
      return { id: requestId, outcome };
    },
  ),
};

const listOwnUsage = action({
  id: "listRequests",
  title: "List the receipts of finished requests, newest first",
  help: "`from` is inclusive, `to` exclusive. A key with the right `own` gets its own receipts, a key with the right `account` those of the account.",
  http: "GET /api/requests",
  role,
  input: { ...views.receiptFilters, ...pageFields },
  refuses: ["key_not_found", "list_too_slow"],
});

const listOwnRefusals = variantOf(views.listRefusals, {
  title: "List the last requests that were refused, newest first, with who refused them and what to do",
  help: "Of this process since its start, and of the last 50 of the account that ended with an error. A key with the right `own` gets its own, a key with the right `account` those of the account. `refused_by` is what the request met: credits, cap, limit, plan or key, key, operator, person, front end, model, service, or a mistake in the request itself.",
  http: "GET /api/refusals",
  role,
  input: pageFields,
});

const sumOwnUsage = variantOf(views.sumUsage, {
  title: "Sum usage by day, model or key",
  http: "GET /api/usage",
  role,
  input: views.sumsOfHolder,
  refuses: ["key_not_found", "list_too_slow"],
});

const showOwnUsageHours = variantOf(views.showUsageHours, {
  http: "GET /api/usage/hours",
  role,
  input: views.hoursFields,
  refuses: ["key_not_found", "list_too_slow"],
});

export const ownUsageActions = {
  listRequests: bind(listOwnUsage, pageSchema(usageObject.schema), async ({ actions, session }, input) => {
    const { limit, after, from, to, ...filters } = input;
    const wanted = { ...filters, ...periodIn({ from, to }), afterSeq: afterSeqIn(after) };
    return await pageOf(
      limit,
      (rows) => actions.receipts(session, { ...wanted, limit: rows }),
      usageObject.of,
      ({ seq }) => String(seq),
    );
  }),
  listRefusals: bind(
    listOwnRefusals,
    pageSchema(refusedRequestObject.schema),
    async ({ actions, session }, input) =>
      pageIn(await actions.refusals(session), input, refusedRequestObject.of),
  ),
  sumUsage: bind(sumOwnUsage, usageReportSchema, async ({ actions, session, timezone }, input) =>
    sumsIn(input, timezone, (wanted) => actions.usageReport(session, wanted)),
  ),
  showUsageHours: bind(showOwnUsageHours, usageHoursSchema, async ({ actions, session }, input) => {
    const { hours = views.graphHoursDefault, by, ...filters } = input;
    return usageHoursObject(
      await actions.usageHours(session, { ...filters, byModel: by === "model" }, hours),
    );
  }),
};
