/**
 * What a reload would change, with the values before and after. Pure.
 *
 * Plans are compared with those of the database, which a reload changes; everything else with the
 * running configuration. Secrets are not shown: only that they differ.
 */
import { sectionChanges } from "../accounts/plan-objects.ts";
import { type SettingChange, settingChanges } from "../accounts/setting-changes.ts";
import { capWarnings } from "../config/cap-warnings.ts";
import { changesBetween, type ReloadPreview } from "../config/changes.ts";
import type { Config } from "../config/load.ts";
import { unpayableModels } from "../config/unpayable.ts";
import { inUseWarning } from "../store/plans.ts";
import { type ComparedPlans, supersededWarning } from "./service-plans.ts";
import { modelText, shownSettings } from "./shown-settings.ts";

export function reloadPreview(running: Config, next: Config, compared: ComparedPlans): ReloadPreview {
  const { changes, inUse } = compared;
  const between = changesBetween(running, next);
  const settings: Both = [shownSettings(running), shownSettings(next)];
  const shown = [
    ...modelChanges(running, next, settings),
    ...sectionChanges(compared.catalog, next.plans, changes),
    ...otherChanges(settings),
  ];
  const named = [
    ...between.models.changed.map((id) => `models.${id}`),
    ...between.settings,
    ...between.needsRestart,
  ];
  const secret = named
    .filter((name) => !shown.some(({ setting }) => setting === name || setting.startsWith(`${name}.`)))
    .map((setting) => ({ setting, before: "not shown", after: "another value, not shown" }));
  const isSuperseded = changes.kind === "superseded";
  const plans = isSuperseded ? [] : [...next.plans.values()];
  return {
    changes: [...shown, ...secret],
    needsRestart: between.needsRestart,
    superseded: isSuperseded,
    warnings: [
      ...(isSuperseded ? [supersededWarning()] : []),
      ...[...unpayableModels(plans, next.models), ...capWarnings(plans, next.models)].map(
        ({ warning }) => warning,
      ),
      ...(inUse.length === 0 ? [] : [inUseWarning(inUse)]),
    ],
  };
}

/** The settings before and after. */
type Both = readonly [Settings, Settings];
type Settings = ReturnType<typeof shownSettings>;

/** A model that comes or goes is one line; of another one, each setting that differs. */
function modelChanges(running: Config, next: Config, settings: Both): SettingChange[] {
  const ids = new Set([...running.models, ...next.models].map(({ id }) => id));
  const [{ models: before }, { models: after }] = settings;
  const textIn = ({ models }: Config, id: string) => {
    const model = models.find((each) => each.id === id);
    return model === undefined ? null : modelText(model);
  };
  return [...ids].flatMap((id) =>
    Object.hasOwn(before, id) && Object.hasOwn(after, id)
      ? settingChanges(before[id], after[id], `models.${id}`)
      : [{ setting: `models.${id}`, before: textIn(running, id), after: textIn(next, id) }],
  );
}

function otherChanges(both: Both): SettingChange[] {
  const [before, after] = both.map(({ models: _, file: __, plans, ...settings }) => {
    const keys = Object.entries(plans).map(([id, plan]) => [`plans.${id}.keys`, plan.keys]);
    return { ...settings, ...Object.fromEntries(keys) };
  });
  return settingChanges(before, after, "");
}
