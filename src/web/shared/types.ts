/** Objects that both APIs have, as their schemas describe them: types, nothing is bundled. */
import type { Static } from "typebox";
import type { refills } from "../../accounts/balance-object.ts";
import type * as objects from "../../accounts/operator-objects.ts";
import type { usageReportSchema } from "../../accounts/usage-sums.ts";

export type { Page } from "../../actions/pages.ts";

import type { rowsPage } from "../../http/admin/account-rows.ts";
import type { lastChunk } from "../../http/api/chat.ts";
import type { choicesObject, ownSession, sessionObject } from "../../http/api/session.ts";

export type ChatCost = Static<typeof lastChunk>;
export type Session = Static<typeof sessionObject.schema>;
export type OwnSession = Static<typeof ownSession.schema>;
/** How people can sign in. */
export type SignInChoices = Static<typeof choicesObject.schema>;

export type RowsPage = Static<typeof rowsPage>;
export type Balance = Static<typeof objects.balance>;
export type Refills = Static<typeof refills>;
export type Key = Static<typeof objects.keyObject.schema>;
export type NewKey = Static<typeof objects.newKeyObject.schema>;
export type Receipt = Static<typeof objects.usageObject.schema>;
export type UsageReport = Static<typeof usageReportSchema>;
export type UsageSum = UsageReport["data"][number];
