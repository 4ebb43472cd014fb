/** The objects of the operator API, as its schemas describe them: types, nothing is bundled. */
import type { Static } from "typebox";
import type { changeObject, operatorKeyObject } from "../../accounts/log-objects.ts";
import type * as objects from "../../accounts/operator-objects.ts";
import type { comparedPlansObject, planObject } from "../../accounts/plan-objects.ts";
import type { accountLiveObject } from "../../http/admin/account-live.ts";
import type { jobObject } from "../../http/admin/job-object.ts";
import type * as live from "../../http/admin/live-objects.ts";
import type { overviewObject } from "../../http/admin/overview-object.ts";
import type { requestObject } from "../../http/admin/request-object.ts";
import type { reloadObject } from "../../http/admin/service-actions.ts";
import type { Page } from "../shared/types.ts";

export type { Readiness } from "../../http/admin/server.ts";

export type Account = Static<typeof objects.accountObject.schema>;
export type ListedAccount = Static<typeof objects.listedAccountObject.schema>;
export type PlanPreview = Static<typeof objects.previewObject.schema>;
export type KeyOfSecret = Static<typeof objects.keyOfSecretObject.schema>;
export type Refund = Static<typeof objects.refundObject.schema>;
export type Payment = Static<typeof objects.paymentObject.schema>;
export type JournalEntry = Static<typeof objects.journalObject.schema>;
export type Change = Static<typeof changeObject.schema>;
export type OperatorKey = Static<typeof operatorKeyObject.schema>;
export type RunningRequest = Static<typeof requestObject.schema>;
export type AccountLive = Static<typeof accountLiveObject.schema>;
export type Overview = Static<typeof overviewObject.schema>;
export type AuditJob = Static<typeof objects.auditJobObject.schema>;
export type Clock = Static<typeof objects.clockObject.schema>;
export type Job = Static<typeof jobObject.schema>;
export type Node = Static<typeof objects.nodeObject.schema>;
export type Plan = Static<typeof planObject.schema>;
export type PlanList = Page<Plan> & { configuration: Static<typeof comparedPlansObject.schema> };
export type Reload = Static<typeof reloadObject.schema>;
export type Model = Static<typeof live.modelObject.schema>;
export type RecentError = Static<typeof live.errorObject.schema>;
export type RecentRefusal = Static<typeof live.refusalObject.schema>;
