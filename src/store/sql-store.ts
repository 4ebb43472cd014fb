/** The parts of a store whose statements are the same on both databases. */
import type { EventSettings } from "../ledger/events.ts";
import { auditRecordOn } from "./audit-record.ts";
import { changeLogOn } from "./change-log-queries.ts";
import { dailyCountsOn } from "./daily-counts.ts";
import { eventQueriesOn } from "./event-queries.ts";
import { invitationQueriesOn } from "./invitation-queries.ts";
import type { KeptPlans } from "./kept-plans.ts";
import { linkQueriesOn } from "./link-queries.ts";
import { operatorKeysOn } from "./operator-key-queries.ts";
import { peopleQueriesOn } from "./people-queries.ts";
import { queriesOn, type SqlConnections } from "./queries.ts";
import { sessionQueriesOn } from "./session-queries.ts";
import type { SqlDialect } from "./sql.ts";
import { stopRequestsOn } from "./stop-requests.ts";

export function sqlStoreOn(
  reads: SqlConnections,
  dialect: SqlDialect,
  { plans, events }: { plans: KeptPlans; events: () => EventSettings | null },
) {
  return {
    ...queriesOn(reads, dialect, plans),
    ...auditRecordOn(reads, dialect, events),
    stopRequests: stopRequestsOn(reads, dialect),
    operatorKeys: operatorKeysOn(reads, dialect),
    dailyCounts: dailyCountsOn(reads, dialect),
    ...changeLogOn(reads, dialect),
    events: eventQueriesOn(reads, dialect),
    invitations: invitationQueriesOn(reads, dialect),
    links: linkQueriesOn(reads, dialect),
    ...sessionQueriesOn(reads, dialect),
    ...peopleQueriesOn(reads, dialect, plans),
  };
}
