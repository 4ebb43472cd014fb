/** Words for the grants of a plan. Pages bundle this file. */
import { grouped } from "../units.ts";
import { limitTexts } from "./plan-limits.ts";

interface Windows {
  credits: number;
  every: string;
  align: string;
}

interface GrantedCap extends Windows {
  name: string;
  models: readonly string[];
}

interface Granted {
  base: Windows;
  overage: Windows;
  spending_caps: readonly GrantedCap[];
  limits: Parameters<typeof limitTexts>[0];
  models: readonly string[];
  timezone: string;
}

/** Returns what a plan grants, without its name. */
export function planText(plan: Granted): string {
  const { base, overage, spending_caps: caps, limits, models, timezone } = plan;
  return [
    `${grouped(base.credits)} credits every ${base.every}${notesOf(base)}`,
    `overage ${grouped(overage.credits)} every ${overage.every}${notesOf(overage)}`,
    ...caps.map((cap) => grantedCapText(cap)),
    ...limitTexts(limits),
    ...(models.length === 1 && models[0] === "*" ? [] : [`models ${models.join(" ")}`]),
    ...([base, overage, ...caps].some(({ align }) => align === "calendar") ? [`zone ${timezone}`] : []),
  ].join(", ");
}

/** `periodOf`: the word for an ISO 8601 period. */
export function grantedCapText(
  { name, credits, every, align, models }: GrantedCap,
  periodOf = (period: string) => period,
): string {
  const notes = notesOf({ align }, ...(name === every ? [] : [name]));
  const covered = models.includes("*") ? "" : ` of ${models.join(" ")}`;
  return `at most ${grouped(credits)}${covered} every ${periodOf(every)}${notes}`;
}

function notesOf({ align }: Pick<Windows, "align">, ...others: string[]): string {
  const notes = align === "calendar" ? ["calendar", ...others] : others;
  return notes.length === 0 ? "" : ` (${notes.join(", ")})`;
}
