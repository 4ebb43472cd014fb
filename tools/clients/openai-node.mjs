import OpenAI from "openai";
import { run } from "./harness.mjs";

const clientOf = (job) => new OpenAI({ baseURL: job.url, apiKey: job.key });

async function* chat(job, prompt) {
  const { completions } = clientOf(job).chat;
  const request = { model: job.model, messages: [{ role: "user", content: prompt }] };
  if (!job.stream) {
    const { choices, usage } = await completions.create(request);
    yield choices[0].message.content;
    yield usage;
    return;
  }
  const stream = await completions.create({
    ...request,
    stream: true,
    stream_options: { include_usage: true },
  });
  // Leaving the loop early closes the stream.
  for await (const { choices, usage } of stream) {
    for (const { delta } of choices) yield delta.content ?? "";
    if (usage) yield usage;
  }
}

run(chat, async (job) => (await clientOf(job).models.list()).data.map(({ id }) => id));
