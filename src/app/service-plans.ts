/**
 * The plans section of the configuration of a running service: made current in the database at
 * start and at each reload. The database is the truth, for this node and all others.
 *
 * Guarantees that a section that a newer one has replaced is applied only if an operator asks for
 * it, and that the service notices within one interval if another node replaces its section.
 */
import type { Logger } from "pino";
import { service } from "../actors.ts";
import { capWarnings } from "../config/cap-warnings.ts";
import type { AppliedPlansReport } from "../config/changes.ts";
import type { ModelConfig } from "../config/model.ts";
import { unpayableModels } from "../config/unpayable.ts";
import { inkwell } from "../invocation.ts";
import type { Jobs } from "../jobs.ts";
import { offeredPlans, type PlanCatalog, type Plans } from "../ledger/plan.ts";
import { isCurrent, type PlanChanges, planChanges } from "../ledger/plan-section.ts";
import { inUseWarning, retiredInUse } from "../store/plans.ts";
import type { Store } from "../store/store.ts";

export function supersededWarning(): string {
  return `The plans of the configuration are not in use, because newer ones replaced them. To make them current: ${inkwell("plans apply")}`;
}

interface ApplyOptions {
  force?: boolean;
  /** The actor who applies it. Default: the service, at its start. */
  by?: string;
  models?: readonly ModelConfig[];
}

export interface ComparedPlans {
  catalog: PlanCatalog;
  changes: PlanChanges;
  /** Retired plans that accounts would have, and keep. */
  inUse: ReturnType<typeof retiredInUse>;
}

type PlanStore = Pick<Store, "applyPlans" | "plans" | "accountsOnPlans">;

export class ServicePlans {
  readonly #store: PlanStore;
  readonly #logger: Logger;
  #section: Plans = new Map();
  #models: readonly ModelConfig[] = [];
  #superseded = false;
  #unpayable: ReturnType<typeof unpayableModels> = [];
  #caps: ReturnType<typeof capWarnings> = [];
  #applications = 0;

  constructor(store: PlanStore, logger: Logger) {
    this.#store = store;
    this.#logger = logger;
  }

  /** Whether a newer section has replaced that of the configuration. */
  get superseded(): boolean {
    return this.#superseded;
  }

  /** Sentences for the operator about the plans that are current now. */
  get warnings(): string[] {
    const superseded = this.#superseded ? [supersededWarning()] : [];
    return [...superseded, ...[...this.#unpayable, ...this.#caps].map(({ warning }) => warning)];
  }

  /**
   * Applies the section, unless it was superseded and `force` is false. Logs every warning.
   * `models` are those that the plans pay for. Default: the last ones.
   */
  async apply(
    section: Plans,
    { force = false, by = service, models = this.#models }: ApplyOptions = {},
  ): Promise<AppliedPlansReport> {
    const changes = await this.#store.applyPlans(section, { force, by });
    this.#applications += 1;
    this.#section = section;
    this.#models = models;
    this.#superseded = changes.kind === "superseded";
    const { added, changed, retired } = changes;
    if (changes.kind === "applied") this.#logger.info({ added, changed, retired }, "the plans are applied");
    if (this.#superseded) this.#warnSuperseded();
    const ofDatabase = await this.#ofDatabase();
    return { ...changes, warnings: [...this.warnings, ...ofDatabase] };
  }

  /** Returns the plans of the database, and what the section would change, without `force`. */
  async compare(section: Plans): Promise<ComparedPlans> {
    const catalog = await this.#store.plans();
    const changes = planChanges(catalog, section, { force: false, nowMs: 0 });
    const offered = changes.kind === "superseded" ? catalog.offered : [...section.keys()];
    return { catalog, changes, inUse: retiredInUse(offered, await this.#store.accountsOnPlans()) };
  }

  /** Looks every `everyMs` whether the section is still the current one. */
  watch(jobs: Jobs, everyMs: number): void {
    jobs.start({
      name: "watch_plans",
      everyMs,
      failure: "the plans could not be read",
      run: () => this.#look(),
    });
  }

  async #look(): Promise<void> {
    const before = this.#applications;
    const catalog = await this.#store.plans();
    // The service has applied a section meanwhile, which may be newer than the read plans.
    if (before !== this.#applications) return;
    this.#compare(catalog);
    const superseded = !isCurrent(catalog, this.#section);
    if (superseded === this.#superseded) return;
    this.#superseded = superseded;
    if (superseded) this.#warnSuperseded();
    else this.#logger.info("the plans of the configuration are current again");
  }

  #warnSuperseded(): void {
    this.#logger.warn(
      `the plans of the configuration are not in use, because newer ones replaced them; to make them current: ${inkwell("plans apply")}`,
    );
  }

  #compare(catalog: PlanCatalog): void {
    const plans = [...offeredPlans(catalog).values()];
    this.#unpayable = unpayableModels(plans, this.#models);
    this.#caps = capWarnings(plans, this.#models);
  }

  /**
   * Compares the current plans with the models, and names damaged plans and retired plans that
   * accounts still have. A section can be applied without them.
   */
  async #ofDatabase(): Promise<string[]> {
    try {
      const catalog = await this.#store.plans();
      for (const [plan, problem] of catalog.damaged)
        this.#logger.error(
          { plan, problem },
          "a plan of the database cannot be read; its accounts cannot be used",
        );
      const damaged = [...catalog.damaged.values()].map((problem) => `Accounts cannot be used: ${problem}.`);
      this.#compare(catalog);
      for (const { model, smallest, plans } of this.#unpayable) {
        this.#logger.warn({ model, smallest, plans }, "these plans can never pay for a request to the model");
      }
      for (const { plan, cap, warning } of this.#caps)
        this.#logger.warn({ plan, cap, warning }, "a cap of the plan may not do what it is meant for");
      const inUse = retiredInUse(catalog.offered, await this.#store.accountsOnPlans());
      if (inUse.length === 0) return damaged;
      this.#logger.warn({ retired: inUse }, "accounts have retired plans, and keep them");
      return [...damaged, inUseWarning(inUse)];
    } catch (err) {
      this.#logger.warn({ err }, "the accounts with retired plans could not be counted");
      return ["The accounts with retired plans could not be counted. The log has the reason."];
    }
  }
}
