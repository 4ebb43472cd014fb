/**
 * Caps of plans that may be a mistake. A cap can name models that do not exist, let no request
 * begin, or be out of reach. Or requests can go past it under another id of a model.
 */
import { allows } from "../chat/catalog.ts";
import { covers, isModelOf } from "../ledger/caps.ts";
import type { BucketPlan, Plan, PlanCap } from "../ledger/plan.ts";
import { windowBuckets } from "../ledger/rows.ts";
import { isSamePeriod, parsePeriod } from "../ledger/windows.ts";
import { dayMs, exactCredits, grouped, hourMs, microOf } from "../units.ts";
import type { ModelConfig } from "./model.ts";
import { smallestRequest } from "./unpayable.ts";

/** `cap`: its name. `warning`: sentences for the operator. */
export function capWarnings(plans: Iterable<Plan>, models: readonly ModelConfig[]) {
  return [...plans].flatMap((plan) => {
    const allowed = models.filter(({ id }) => allows(plan.models, id));
    return plan.caps.flatMap((cap) =>
      [unmatched(cap, models), tooSmall(cap, allowed), neverReached(cap, plan), avoidable(cap, allowed)]
        .filter((text) => text !== null)
        .map((text) => ({
          plan: plan.id,
          cap: cap.name,
          warning: `The cap ${cap.name} of the plan ${plan.id} ${text}`,
        })),
    );
  });
}

function unmatched(cap: PlanCap, models: readonly ModelConfig[]): string | null {
  const names = cap.models.filter((name) => !models.some(({ id }) => isModelOf(name, id)));
  if (names.length === 0) return null;
  return `names models that the configuration does not have: ${names.join(", ")}. The models are ${models.map(({ id }) => id).join(", ")}.`;
}

function tooSmall(cap: PlanCap, allowed: readonly ModelConfig[]): string | null {
  const refused = allowed
    .filter(({ id }) => covers(cap, id))
    .map((model) => ({ id: model.id, ...smallestRequest(model) }))
    .filter(({ smallestMicro }) => smallestMicro > microOf(cap.credits))
    .map(({ id, smallestMicro }) => `${id} (${exactCredits(smallestMicro)})`);
  if (refused.length === 0) return null;
  return `is ${grouped(cap.credits)} credits. The smallest requests to these models take more, so all are refused: ${refused.join(", ")}. Raise the cap, or leave the models out of the models of the plan.`;
}

/** A plan without credits is for purchased ones, and is left out. */
function neverReached(cap: PlanCap, plan: Plan): string | null {
  const most = windowBuckets.reduce((sum, bucket) => sum + mostIn(cap, plan[bucket]), 0);
  if (most === 0 || cap.credits <= most) return null;
  return `is ${grouped(cap.credits)} credits every ${cap.every}, and the plan never has more than ${grouped(most)} to spend in that time. So only additional credits can reach the cap.`;
}

/** Returns credits of a bucket that can at most be spent in one window of the cap. */
function mostIn(cap: PlanCap, bucket: BucketPlan): number {
  const isCalendar = cap.align === "calendar" && bucket.align === "calendar";
  if (isSamePeriod(cap.every, bucket.every)) return (isCalendar ? 1 : 2) * bucket.credits;
  const [whole, part] = [parsePeriod(cap.every), parsePeriod(bucket.every)];
  // With the longest and the shortest months, and days on which clocks change.
  const longestMs = whole.months * 31 * dayMs + hourMs + whole.fixedMs;
  const shortestMs = Math.max(1, part.months * 28 * dayMs - hourMs + part.fixedMs);
  return (Math.ceil(longestMs / shortestMs) + 1) * bucket.credits;
}

/** Two ids for one model, of which the cap covers one. */
function avoidable(cap: PlanCap, allowed: readonly ModelConfig[]): string | null {
  const others = allowed.filter((model) => !covers(cap, model.id));
  const pairs = allowed
    .filter((model) => covers(cap, model.id))
    .flatMap((model) =>
      others.filter((other) => isSameModel(model, other)).map((other) => `${other.id} (as ${model.id})`),
    );
  if (pairs.length === 0) return null;
  return `does not count these ids, which name the same model of a server as one that it counts: ${pairs.join(", ")}. Add them to the models of the cap.`;
}

function isSameModel(one: ModelConfig, other: ModelConfig): boolean {
  if (one.engine === "upstream" && other.engine === "upstream")
    return (
      one.model === other.model && one.urls.some((url) => other.urls.map(addressOf).includes(addressOf(url)))
    );
  return one.engine === "llama" && other.engine === "llama" && one.source === other.source;
}

function addressOf(url: string): string {
  return new URL(url).href.replace(/\/+$/, "");
}
