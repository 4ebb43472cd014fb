/**
 * Applies plans sections of configurations to the plans of the database: compares what they grant,
 * and makes new versions. The kernel needs none of it. Pure.
 */
import { createHash } from "node:crypto";
import { given } from "../objects.ts";
import type { EpochMs } from "../units.ts";
import {
  type BucketPlan,
  newestVersion,
  offeredPlans,
  type Plan,
  type PlanCatalog,
  type Plans,
  type PlanVersion,
} from "./plan.ts";
import { parsePeriod } from "./windows.ts";

/**
 * Returns a text that is the same for plans that grant the same. A period can be written in
 * several ways, and models in any order. The zone counts whatever the windows: caps of keys
 * follow it.
 */
function normalised({ id, base, overage, caps, timezone, limits, models }: Plan): string {
  const bucket = ({ credits, every, align }: BucketPlan) => [credits, parsePeriod(every), align];
  // By name: a limit that the program gets later leaves the fingerprints of other plans alone.
  const limited = Object.entries(given(limits)).sort();
  const capped = caps.map((cap) => JSON.stringify([cap.name, bucket(cap), [...cap.models].sort()])).sort();
  return JSON.stringify([id, bucket(base), bucket(overage), capped, timezone, limited, [...models].sort()]);
}

/** Returns the SHA-256 of a plans section, whatever the order of its plans. */
export function plansFingerprintOf(section: Plans): string {
  const text = [...section.values()].map(normalised).sort().join("\n");
  return createHash("sha256").update(text).digest("hex");
}

/** Reports whether the section grants the same as the current one, apart from damaged plans. */
export function isCurrent(catalog: PlanCatalog, section: Plans): boolean {
  return (
    catalog.epoch > 0 &&
    plansFingerprintOf(offeredPlans(catalog)) === plansFingerprintOf(readable(catalog, section))
  );
}

/** A damaged plan gets no new version, because the numbers of its versions are not known. */
function readable({ damaged }: PlanCatalog, section: Plans): Plans {
  return new Map([...section].filter(([id]) => !damaged.has(id)));
}

/** The changes by a plans section. */
export interface PlanChanges {
  /** `superseded`: the section was current once, and another one was applied after it. */
  kind: "applied" | "unchanged" | "superseded";
  added: string[];
  changed: string[];
  /** Plans that are no longer offered. */
  retired: string[];
  /** Versions to insert. */
  versions: PlanVersion[];
}

/**
 * Compares a section with the catalog. `force` applies a superseded section as well.
 */
export function planChanges(
  catalog: PlanCatalog,
  section: Plans,
  { force, nowMs }: { force: boolean; nowMs: EpochMs },
): PlanChanges {
  const nothing = { added: [], changed: [], retired: [], versions: [] };
  if (isCurrent(catalog, section)) return { kind: "unchanged", ...nothing };
  if (!force && catalog.fingerprints.includes(plansFingerprintOf(section)))
    return { kind: "superseded", ...nothing };
  const added = [...section.keys()].filter((id) => !catalog.offered.includes(id));
  const retired = catalog.offered.filter((id) => !section.has(id));
  const versions = [...readable(catalog, section).values()].flatMap((plan): PlanVersion[] => {
    const newest = newestVersion(catalog, plan.id);
    if (newest !== undefined && normalised(newest) === normalised(plan)) return [];
    // Versions of a plan are ordered by time, even if the clock was set back.
    const createdMs = Math.max(nowMs, newest?.createdMs ?? nowMs);
    return [{ ...plan, version: (newest?.version ?? 0) + 1, createdMs }];
  });
  const changed = versions.map(({ id }) => id).filter((id) => catalog.offered.includes(id));
  return { kind: "applied", added, changed, retired, versions };
}
