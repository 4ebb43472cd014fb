/**
 * What the service does now and did lately, from the memory of its processes. Each tells its part,
 * and the parts of all workers are shown as one service.
 */
import type { Catalog } from "../../chat/catalog.ts";
import type { JobState } from "../../job.ts";
import type { Jobs } from "../../jobs.ts";
import type { NodeView } from "../../store/nodes.ts";
import type { LiveTelemetry } from "../../telemetry/live-telemetry.ts";
import { type Activity, activityOf, type Slot } from "../../telemetry/recent-activity.ts";
import type { RecentError } from "../../telemetry/recent-errors.ts";
import { dayMs, hourMs } from "../../units.ts";
import type { RunningRequests } from "../public/running-requests.ts";
import { activityObject, type ModelJson, modelObject } from "./live-objects.ts";

/** What this process has in memory of its requests and its work. */
export interface LiveSources {
  catalog: Pick<Catalog, "all">;
  live: Pick<LiveTelemetry, "activity" | "errors" | "refusalsOf">;
  /** The chat requests that this process answers. */
  requests: Pick<RunningRequests, "list">;
  jobs: Jobs;
  /** The processes on the same database, including this process. */
  nodes(): readonly NodeView[];
}

interface Lists {
  /** Id of the process; of workers the first one. */
  node: string;
  jobs: JobState[];
  /** Newest first. */
  errors: RecentError[];
}

/** Of one process. Without functions, because it is sent to another one. */
interface LivePart extends Lists {
  models: { json: ModelJson; lastDay: Slot }[];
  lastHour: Slot;
  lastDay: Slot;
}

export interface LiveState extends Lists {
  models: ModelJson[];
  lastHour: Activity;
  lastDay: Activity;
}

export function livePartOf({ catalog, jobs, nodes, live: { activity, errors } }: LiveSources): LivePart {
  return {
    models: catalog.all().map((model) => ({
      json: modelObject.of({ ...model, lastDay: activity.over(model.id, dayMs) }),
      lastDay: activity.sumOver(model.id, dayMs),
    })),
    node: nodes().find(({ isSelf }) => isSelf)?.id ?? "",
    jobs: jobs.states(),
    errors: errors.list(),
    lastHour: activity.sumOver(null, hourMs),
    lastDay: activity.sumOver(null, dayMs),
  };
}

/** A part is null if its process does not answer. */
export function liveStateOf(parts: readonly (LivePart | null)[]): LiveState {
  const all = parts.filter((part) => part !== null);
  const models = all.flatMap((part) => part.models);
  const jobs = all.flatMap((part) => part.jobs);
  return {
    models: [...Map.groupBy(models, ({ json }) => json.id).values()].flatMap(modelOf),
    jobs: [...Map.groupBy(jobs, ({ name }) => name).values()].flatMap(
      (same) => same.find(({ state }) => state !== "ok") ?? same.slice(0, 1),
    ),
    node: all.map(({ node }) => node).toSorted()[0] ?? "",
    errors: all.flatMap(({ errors }) => errors).toSorted((one, other) => other.lastMs - one.lastMs),
    lastHour: activityOf(all.map(({ lastHour }) => lastHour)),
    lastDay: activityOf(all.map(({ lastDay }) => lastDay)),
  };
}

/** What does not work in one process is shown. */
function modelOf(parts: readonly { json: ModelJson; lastDay: Slot }[]): ModelJson[] {
  const all = parts.map(({ json }) => json);
  const shown = all.find(({ state }) => state !== "ready") ?? all[0];
  if (shown === undefined) return [];
  const loads = all.flatMap(({ load }) => load ?? []);
  const total = (name: "running" | "waiting" | "paused") => loads.reduce((sum, load) => sum + load[name], 0);
  const load = { running: total("running"), waiting: total("waiting"), paused: total("paused") };
  const servers = shown.servers?.map((server) => {
    const same = all.flatMap((each) => each.servers?.filter(({ url }) => url === server.url) ?? []);
    const worst = same.find(({ state }) => state !== "ok") ?? server;
    const notices = same.flatMap((each) => each.notices);
    return { ...worst, notices, running: same.reduce((sum, { running }) => sum + running, 0) };
  });
  const lastDay = activityObject.of(activityOf(parts.map((part) => part.lastDay)));
  return [{ ...shown, load: shown.load && load, servers: servers ?? null, last_day: lastDay }];
}
