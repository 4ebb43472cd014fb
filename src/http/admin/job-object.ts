/** Regular work of this process as an object: what it is, and whether it succeeds. */
import Type from "typebox";
import { closed, count, isoTime, objectFor, orNull, text, time } from "../../accounts/json-objects.ts";
import type { JobState } from "../../job.ts";

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
