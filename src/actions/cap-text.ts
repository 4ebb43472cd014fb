/**
 * Caps as text: `300/PT5H, 1000/P1W/calendar, dear 200/P1D of big-* huge`. For options of the
 * command line and inputs of forms. Pages bundle this file.
 */
import { type ListText, partOf } from "./field.ts";

/** Periods after which a form offers windows of the calendar. */
export const calendarPeriods: readonly string[] = ["P1D", "P1W", "P1M"];

const form =
  /^(?:(?<name>[^\s/]+) )?(?<credits>\d{1,15})\/(?<every>[^/\s]+)(?<calendar>\/calendar(?:\/(?<timezone>\S+))?)?(?: of (?<models>.+))?$/;

export const capText: ListText = {
  example: "300/PT5H, 1000/P1W/calendar, dear 200/P1D of big-*",
  read(text) {
    if (text.trim() === "none") return [];
    const caps = text.split(",").map((each) => capIn(each.trim().replace(/\s+/g, " ")));
    return caps.every((cap) => cap !== null) ? caps : null;
  },
  write: (caps) => caps.map(textOf).join(", "),
  isPlain(caps) {
    const [cap] = caps;
    if (cap === undefined) return true;
    const [name, every, align] = ["name", "every", "align"].map((part) => partOf(cap, part));
    const hasInputs = align !== "calendar" || calendarPeriods.includes(String(every));
    return caps.length === 1 && (name ?? every) === every && modelsOf(cap) === "*" && hasInputs;
  },
};

/** Caps of a plan, which have its time zone. */
export const planCapText: ListText = { ...capText, isPlain: () => false };

function capIn(text: string): Record<string, unknown> | null {
  const groups = form.exec(text)?.groups;
  if (groups === undefined) return null;
  const { name, credits, every, calendar, timezone, models } = groups;
  return {
    credits: Number(credits),
    every,
    ...(calendar === undefined ? {} : { align: "calendar" }),
    ...(timezone === undefined ? {} : { timezone }),
    ...(name === undefined ? {} : { name }),
    ...(models === undefined ? {} : { models: models.split(" ") }),
  };
}

function textOf(cap: unknown): string {
  const part = (name: string) => partOf(cap, name);
  const name = [part("every"), undefined].includes(part("name")) ? "" : `${part("name")} `;
  const zone = part("timezone") === undefined ? "" : `/${part("timezone")}`;
  const calendar = part("align") === "calendar" ? `/calendar${zone}` : "";
  const models = modelsOf(cap) === "*" ? "" : ` of ${modelsOf(cap)}`;
  return `${name}${part("credits") ?? "CREDITS"}/${part("every")}${calendar}${models}`;
}

function modelsOf(cap: unknown): string {
  const models = partOf(cap, "models");
  return Array.isArray(models) ? models.join(" ") : "*";
}
