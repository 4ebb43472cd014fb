/** The plans of a running service. `applyPlans` is the only place that replaces them. */
import type { Plan, Plans } from "../ledger/plan.ts";

/** Shared by authentication, operator actions and the ledger, which read it in place. */
export type LivePlans = Map<string, Plan>;

/**
 * Adds new plans, replaces changed plans, and retires plans that left the configuration: their
 * accounts keep them.
 */
export function applyPlans(live: LivePlans, next: Plans): void {
  for (const [id, plan] of live) if (!next.has(id)) live.set(id, { ...plan, retired: true });
  for (const [id, plan] of next) live.set(id, plan);
}
