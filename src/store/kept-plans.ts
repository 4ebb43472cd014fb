/** Reads all plans, and keeps them for as long as they are current. */
import type { PlanCatalog } from "../ledger/plan.ts";
import { type Find, readCatalog } from "./plans.ts";

export class KeptPlans {
  readonly #find: Find;
  #kept: PlanCatalog | null = null;

  constructor(find: Find) {
    this.#find = find;
  }

  /** Returns the plans of the section with this mark, or null if others are kept. */
  known(mark: number): PlanCatalog | null {
    return this.#kept?.mark === mark ? this.#kept : null;
  }

  /** Returns the plans of this section, or those that have become current since. */
  async at(mark: number): Promise<PlanCatalog> {
    const known = this.known(mark);
    if (known !== null) return known;
    this.#kept = await readCatalog(this.#find);
    return this.#kept;
  }
}
