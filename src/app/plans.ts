/**
 * The plans section of the configuration of a running service: made current in the database at
 * start and at each reload. The database is the truth, for this node and all others.
 *
 * Guarantees that a section that a newer one has replaced is applied only if an operator asks for
 * it, and that the service notices within one interval if another node replaces its section.
 */
import type { Logger } from "pino";
import type { AppliedPlansReport } from "../config/changes.ts";
import { isCurrent, type Plans } from "../ledger/plan.ts";
import { inUseWarning, retiredInUse } from "../store/plans.ts";
import type { Store } from "../store/store.ts";

export const supersededWarning =
  "The plans of the configuration are not in use, because newer ones replaced them. To make them current: inkwell plans apply";

type PlanStore = Pick<Store, "applyPlans" | "plans" | "accountsOnPlans">;

export class ServicePlans {
  readonly #store: PlanStore;
  readonly #logger: Logger;
  #section: Plans = new Map();
  #superseded = false;
  #applications = 0;
  #timer: NodeJS.Timeout | null = null;
  #looking: Promise<void> | null = null;

  constructor(store: PlanStore, logger: Logger) {
    this.#store = store;
    this.#logger = logger;
  }

  /** Whether a newer section has replaced that of the configuration. */
  get superseded(): boolean {
    return this.#superseded;
  }

  /** Applies the section, unless it was superseded and `force` is false. Logs every warning. */
  async apply(section: Plans, { force = false } = {}): Promise<AppliedPlansReport> {
    const changes = await this.#store.applyPlans(section, force);
    this.#applications += 1;
    this.#section = section;
    this.#superseded = changes.kind === "superseded";
    const { added, changed, retired } = changes;
    if (changes.kind === "applied") this.#logger.info({ added, changed, retired }, "the plans are applied");
    if (this.#superseded) this.#warnSuperseded();
    const superseded = this.#superseded ? [supersededWarning] : [];
    return { ...changes, warnings: [...superseded, ...(await this.#inUse())] };
  }

  /** Looks every `everyMs` whether the section is still the current one. */
  watch(everyMs: number): void {
    this.#timer = setInterval(() => {
      this.#looking ??= this.#look()
        .catch((err: unknown) => this.#logger.warn({ err }, "the plans could not be read; trying again"))
        .finally(() => {
          this.#looking = null;
        });
    }, everyMs);
  }

  /** Resolves when the last look has ended. */
  async stop(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    await this.#looking;
  }

  async #look(): Promise<void> {
    const before = this.#applications;
    const superseded = !isCurrent(await this.#store.plans(), this.#section);
    // The service has applied a section meanwhile, which may be newer than the read plans.
    if (before !== this.#applications || superseded === this.#superseded) return;
    this.#superseded = superseded;
    if (superseded) this.#warnSuperseded();
    else this.#logger.info("the plans of the configuration are current again");
  }

  #warnSuperseded(): void {
    this.#logger.warn(
      "the plans of the configuration are not in use, because newer ones replaced them; to make them current: inkwell plans apply",
    );
  }

  /** Names retired plans that accounts still have. They are not needed to apply a section. */
  async #inUse(): Promise<string[]> {
    try {
      const { offered } = await this.#store.plans();
      const inUse = retiredInUse(offered, await this.#store.accountsOnPlans());
      if (inUse.length === 0) return [];
      this.#logger.warn({ retired: inUse }, "accounts have retired plans, and keep them");
      return [inUseWarning(inUse)];
    } catch (err) {
      this.#logger.warn({ err }, "the accounts with retired plans could not be counted");
      return ["The accounts with retired plans could not be counted. The log has the reason."];
    }
  }
}
