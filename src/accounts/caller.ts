/** Who is asking: what a valid key stands for during one request. */
import type { Plan } from "../ledger/plan.ts";

export interface Caller {
  accountId: string;
  keyId: string;
  /** The account's plan. */
  plan: Plan;
  /** Requests that the key may have running at once; null: as many as the plan allows. */
  concurrent: number | null;
  /** The key's own list of models (`*` for all); the plan's list holds as well. */
  models: readonly string[];
}
