/** The usage of an account by day, model and key. */

import { UsageOfPeriod } from "../../shared/usage-report.tsx";
import type { AccountTabProps } from "./account-tab.ts";

export function AccountUsage({ account: { id }, place }: AccountTabProps) {
  return (
    <UsageOfPeriod place={place} path="/admin/usage/sums" account={id} groups={["day", "model", "key"]} />
  );
}
