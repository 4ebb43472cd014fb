/** The usage of the whole service. */
import { PageHead } from "../../shared/layout.tsx";
import type { Place } from "../../shared/router.tsx";
import { UsageOfPeriod } from "../../shared/usage-report.tsx";

export function UsagePage({ place }: { place: Place }) {
  return (
    <>
      <PageHead title="Usage" />
      <UsageOfPeriod place={place} path="/admin/usage/sums" groups={["account", "day", "model", "key"]} />
    </>
  );
}
