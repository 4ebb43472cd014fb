/** `/admin/jobs`: the regular work of this process, and whether it succeeds. */
import Type from "typebox";
import { closed, count, isoTime, objectFor, orNull, text, time } from "../../accounts/json-objects.ts";
import type { JobState } from "../../job.ts";
import { type ApiApp, route } from "../api/app.ts";
import { pageIn } from "../api/paging.ts";
import * as schema from "../api/schemas.ts";
import type { AdminDependencies } from "./dependencies.ts";

export const jobObject = objectFor<JobState>("Job")({
  name: [text, (job) => job.name],
  every_ms: [count, (job) => job.everyMs],
  state: [
    Type.Enum(["ok", "failing", "hanging"], {
      description: "failing: its last run failed. hanging: its run has not ended for more than a minute",
    }),
    (job) => job.state,
  ],
  since: [time, (job) => isoTime(job.sinceMs)],
  last_success_at: [orNull(time), (job) => job.lastSuccessMs && isoTime(job.lastSuccessMs)],
  last_error: [
    orNull(closed({ at: time, message: text })),
    ({ lastError }) => lastError && { at: isoTime(lastError.atMs), message: lastError.message },
  ],
});

export function jobRoutes(app: ApiApp, { jobs }: AdminDependencies): void {
  app.get(
    "/admin/jobs",
    route("listJobs", {
      summary: "List the regular work of this process and whether it succeeds",
      description:
        "`since` is the time at which the state began. `last_error` is kept after a success. A restart begins anew.",
      ...schema.listOf(jobObject.schema),
    }),
    async ({ query }) => {
      const rows = jobs.states().map((job) => ({ ...job, id: job.name }));
      return await pageIn(rows, query, jobObject.of);
    },
  );
}
