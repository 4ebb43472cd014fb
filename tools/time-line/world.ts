/** The account of the time line: its plans, prices and times, as the kernel has them. */
import { noPlans, type PlanCatalog, type PlanVersion } from "../../src/ledger/plan.ts";
import type { Price } from "../../src/ledger/pricing.ts";
import { limitsIn } from "../../src/ledger/rows.ts";
import { type EpochMs, microPerCredit } from "../../src/units.ts";
import { type PlanName, planNames, quarterMs } from "./history.ts";

export const accountId = "reader";
export const keyId = "key";

/** The account is opened then. */
const openedMs: EpochMs = Date.UTC(2027, 2, 1);

export function msAt(quarter: number): EpochMs {
  return openedMs + quarter * quarterMs;
}

export function quarterAt(ms: EpochMs): number {
  return Math.round((ms - openedMs) / quarterMs);
}

/** As in the service, a hold pays for slices of this many tokens. */
export const sliceTokens = 256;
/** Answers are slow, so that a slice can be seen: it takes half an hour. */
export const quarterTokens = sliceTokens / 2;
export const promptTokens = 64;
/** 64 tokens cost a credit, so a prompt costs 1 credit, and a slice 4. */
export const price: Price = { prompt: microPerCredit / 64, completion: microPerCredit / 64 };
/** A hold that is not extended expires after two hours. */
export const holdQuarters = 8;
/** An answer waits an hour for credits that other requests hold. */
export const waitQuartersMax = 4;

const amounts = {
  small: { base: 20, every: "PT5H", overage: 30 },
  large: { base: 40, every: "PT5H", overage: 60 },
  daily: { base: 80, every: "P1D", overage: 30 },
} as const satisfies Record<PlanName, object>;

function planOf(id: PlanName): PlanVersion {
  const { base, every, overage } = amounts[id];
  return {
    id,
    base: { credits: base, every, align: "opening" },
    overage: { credits: overage, every: "P1D", align: "opening" },
    ...{ timezone: "UTC", limits: {}, models: ["*"], version: 1, createdMs: openedMs },
  };
}

export const plans: PlanCatalog = {
  ...noPlans,
  epoch: 1,
  offered: planNames,
  versions: new Map(planNames.map((name) => [name, [planOf(name)]])),
};

export const planTexts: Record<PlanName, string> = {
  small: "20 credits every 5 h, and 30 of overage a day",
  large: "40 credits every 5 h, and 60 of overage a day",
  daily: "80 credits a day, and 30 of overage a day",
};

export const firstKey = {
  ...{ id: keyId, account: accountId, hash: "0".repeat(64), lastFour: "0000", name: null },
  ...{ models: ["*"], expiresMs: null, portal: "own" as const, actsFor: null, ...limitsIn({}) },
};
