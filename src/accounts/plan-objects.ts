/** The JSON object of a plan, for the operator API and the command line. */
import Type, { type Static } from "typebox";
import { newestVersion, type Plan, type PlanCatalog, type Plans, type PlanVersion } from "../ledger/plan.ts";
import type { PlanChanges } from "../ledger/plan-section.ts";
import { alignments } from "../ledger/windows.ts";
import { closed, component, count, isoTime, limitsSchema, objectFor, text, time } from "./json-objects.ts";
import { limitsObject } from "./plan-limits.ts";
import { grantedCapText, planText } from "./plan-text.ts";
import { type SettingChange, settingChangeObject, settingChanges } from "./setting-changes.ts";

/** A plan of the database. */
export interface PlanState {
  id: string;
  isOffered: boolean;
  /** Accounts on the plan, without closed accounts. */
  accounts: number;
  /** Newest first. */
  versions: readonly PlanVersion[];
}

const bucket = closed({ credits: count, every: text, align: Type.Enum([...alignments]) });

const cap = closed({ name: text, ...bucket.properties, models: Type.Array(text) });

const granted = {
  base: bucket,
  overage: bucket,
  spending_caps: Type.Array(cap),
  timezone: text,
  limits: limitsSchema,
  models: Type.Array(text),
};
/** What a plan grants. */
export type GrantedJson = Static<Type.TObject<typeof granted>>;
const version = component("PlanVersion", { version: count, created_at: time, ...granted });

export const planObject = objectFor<PlanState>("Plan")({
  id: [text, (plan) => plan.id],
  offered: [
    Type.Boolean({ description: "whether accounts can be put on it; otherwise it is retired" }),
    (plan) => plan.isOffered,
  ],
  accounts: [count, (plan) => plan.accounts],
  versions: [
    Type.Array(version, { description: "newest first" }),
    (plan) => plan.versions.map(versionFields),
  ],
});

export type PlanJson = Static<typeof planObject.schema>;

/** A plans section, and what it would change in the database. */
interface ComparedPlans {
  catalog: PlanCatalog;
  section: Plans;
  changes: PlanChanges;
}

const names = (description: string) => Type.Array(text, { description });

export const comparedPlansObject = objectFor<ComparedPlans>("ConfiguredPlans")({
  current: [
    Type.Boolean({ description: "whether the plans of this node's configuration are in use" }),
    ({ changes }) => changes.kind === "unchanged",
  ],
  added: [names("plans that the database does not offer"), ({ changes }) => changes.added],
  changed: [names("plans that grant something else"), ({ changes }) => changes.changed],
  retired: [names("offered plans that the configuration does not have"), ({ changes }) => changes.retired],
  changes: [
    Type.Array(settingChangeObject.schema, { description: "what applying them would change" }),
    ({ catalog, section, changes }) => sectionChanges(catalog, section, changes).map(settingChangeObject.of),
  ],
  plans: [
    Type.Array(component("ConfiguredPlan", { id: text, ...granted }), {
      description: "the added and changed plans, as the configuration has them",
    }),
    ({ section, changes: { added, changed } }) =>
      [...section.values()]
        .filter(({ id }) => added.includes(id) || changed.includes(id))
        .map((plan) => ({ id: plan.id, ...grantedBy(plan) })),
  ],
});

/** Returns what a section would change. A plan that comes or goes is one line. */
export function sectionChanges(
  catalog: PlanCatalog,
  section: Plans,
  { added, changed, retired }: PlanChanges,
): SettingChange[] {
  const textOf = (plan: Plan | undefined) => (plan === undefined ? null : planText(grantedBy(plan)));
  return [...added, ...changed, ...retired].flatMap((id) => {
    const [old, next] = [newestVersion(catalog, id), section.get(id)];
    if (old !== undefined && next !== undefined && changed.includes(id)) return planChangesBetween(old, next);
    return [{ setting: `plans.${id}`, before: added.includes(id) ? null : textOf(old), after: textOf(next) }];
  });
}

/** Returns what differs in what two versions of a plan grant. */
export function planChangesBetween(before: Plan, after: Plan): SettingChange[] {
  const [old, drafted] = [before, after].map((plan) => {
    const { spending_caps: caps, ...granted } = grantedBy(plan);
    return { ...granted, caps: caps.map((cap) => grantedCapText(cap)) };
  });
  return settingChanges(old, drafted, `plans.${after.id}`);
}

export type ConfiguredPlansJson = Static<typeof comparedPlansObject.schema>;

function versionFields(of: PlanVersion) {
  return { version: of.version, created_at: isoTime(of.createdMs), ...grantedBy(of) };
}

/** Returns what a plan grants. */
export function grantedBy({ base, overage, caps, timezone, limits, models }: Plan) {
  return {
    base,
    overage,
    spending_caps: caps.map((each) => ({ ...each, models: [...each.models] })),
    timezone,
    limits: limitsObject(limits),
    models: [...models],
  };
}
