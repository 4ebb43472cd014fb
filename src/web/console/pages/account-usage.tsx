/** The usage of an account by day, model and key. */
import type { AccountTabProps } from "./account-tab.ts";
import { UsageOfPeriod } from "./usage-report.tsx";

export function AccountUsage({ account: { id }, place }: AccountTabProps) {
  return <UsageOfPeriod place={place} account={id} groups={["day", "model", "key"]} />;
}
