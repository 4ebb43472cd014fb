/**
 * Runs the jobs of `npm run clients` with a client, and prints a line of JSON for each.
 *
 * `chat(job, prompt)` yields pieces of text, and objects with `prompt_tokens` and
 * `completion_tokens`. `models(job)` returns a list of ids, or is null if the client has no list.
 */
import { text } from "node:stream/consumers";

const errorOf = (error) =>
  [error?.constructor?.name, String(error), error?.status ?? error?.statusCode, error?.code, error?.responseBody]
    .filter((part) => part !== undefined && part !== null)
    .join(" ");

async function answerOf(chat, job, prompt) {
  const answer = { text: "" };
  try {
    let pieces = 0;
    for await (const event of chat(job, prompt)) {
      if (typeof event !== "string") Object.assign(answer, event);
      else {
        answer.text += event;
        if (event !== "" && ++pieces === job.leave_after) break;
      }
    }
  } catch (error) {
    answer.error = errorOf(error);
  }
  return answer;
}

export async function run(chat, models) {
  for (const job of JSON.parse(await text(process.stdin))) {
    if (job.name === "models" && models === null) continue;
    const answers =
      job.name === "models"
        ? [
            await models(job).then(
              (ids) => ({ models: ids }),
              (error) => ({ error: errorOf(error) }),
            ),
          ]
        : await Promise.all(
            Array.from({ length: job.times }, (_, n) => answerOf(chat, job, `${job.name} ${n}`)),
          );
    console.log(JSON.stringify({ name: job.name, answers }));
  }
  process.exit(0);
}
