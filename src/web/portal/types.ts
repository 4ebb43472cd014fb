/** The objects of the portal's API, as its schemas describe them: types, nothing is bundled. */
import type { Static } from "typebox";
import type { refusedRequestObject } from "../../accounts/refused-requests.ts";
import type { usageHoursSchema } from "../../accounts/usage-hours.ts";
import type { accountStateObject, ownAccountObject } from "../../http/portal/account.ts";
import type { modelObject } from "../../http/portal/models.ts";

export type OwnAccount = Static<typeof ownAccountObject.schema>;
export type AccountState = Static<typeof accountStateObject.schema>;
export type UsableModel = Static<typeof modelObject.schema>;
export type UsageHours = Static<typeof usageHoursSchema>;
export type RefusedRequest = Static<typeof refusedRequestObject.schema>;

export type { PortalLive } from "../../http/portal/live.ts";
