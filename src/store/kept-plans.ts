/** Reads all plans, and keeps them for as long as they are current. */
import type { PlanCatalog } from "../ledger/plan.ts";
import { type Find, readCatalog } from "./plans.ts";

export class KeptPlans {
  readonly #find: Find;
  #kept: PlanCatalog | null = null;

  constructor(find: Find) {
    this.#find = find;
  }

  /** Returns the plans of this section or of a newer one, or null if they have not been read. */
  known(epoch: number): PlanCatalog | null {
    return this.#kept !== null && this.#kept.epoch >= epoch ? this.#kept : null;
  }

  /** Returns the plans of this section or of a newer one. */
  async at(epoch: number): Promise<PlanCatalog> {
    const known = this.known(epoch);
    if (known !== null) return known;
    const read = await readCatalog(this.#find);
    if (this.#kept === null || this.#kept.epoch < read.epoch) this.#kept = read;
    return this.#kept;
  }
}
