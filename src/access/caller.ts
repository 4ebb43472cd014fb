/** Who is asking: what a valid key stands for during one request. */
import type { Plan } from "../credits/plan.ts";

export interface Caller {
  accountId: string;
  keyId: string;
  /** The account's plan. */
  plan: Plan;
  /** The key's own list of models (`*` for all); the plan's list holds as well. */
  models: readonly string[];
}
