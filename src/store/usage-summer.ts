/** Sums charges regularly, so that reports are fast and days become final without one. */
import { startChore } from "./chore.ts";
import type { Store } from "./store.ts";

export function startUsageSummer(
  store: Pick<Store, "sumUsage">,
  options: { everyMs: number; timezone(): string; onError(error: unknown): void },
) {
  return startChore(async (isStopped) => {
    while (!isStopped() && (await store.sumUsage(options.timezone())));
  }, options);
}
