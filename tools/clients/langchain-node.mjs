import { ChatOpenAI } from "@langchain/openai";
import { run } from "./harness.mjs";

async function* chat(job, prompt) {
  const model = new ChatOpenAI({ model: job.model, apiKey: job.key, configuration: { baseURL: job.url } });
  const messages = job.stream ? await model.stream(prompt) : [await model.invoke(prompt)];
  for await (const { text, usage_metadata: usage } of messages) {
    yield text;
    if (usage) yield { prompt_tokens: usage.input_tokens, completion_tokens: usage.output_tokens };
  }
}

run(chat, null);
