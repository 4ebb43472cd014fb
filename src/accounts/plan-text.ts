/** What a plan grants, in words. Pages bundle this file. */
import { grouped } from "../units.ts";
import { limitTexts } from "./plan-limits.ts";
import type { GrantedJson } from "./plan-objects.ts";

/** Returns what a plan grants, without its name. */
export function planText(plan: Omit<GrantedJson, "timezone">): string {
  const { base, overage, spending_caps: caps, limits, models } = plan;
  return [
    `${grouped(base.credits)} credits every ${base.every}, overage ${grouped(overage.credits)} every ${overage.every}`,
    ...caps.map((cap) => grantedCapText(cap)),
    ...limitTexts(limits),
    ...(models.length === 1 && models[0] === "*" ? [] : [`models ${models.join(" ")}`]),
  ].join(", ");
}

/** `periodOf`: the word for an ISO 8601 period. */
export function grantedCapText(
  { name, credits, every, models }: GrantedJson["spending_caps"][number],
  periodOf = (period: string) => period,
): string {
  const named = name === every ? "" : ` (${name})`;
  const covered = models.includes("*") ? "" : ` of ${models.join(" ")}`;
  return `at most ${grouped(credits)}${covered} every ${periodOf(every)}${named}`;
}
