import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import { run } from "./harness.mjs";

const usageOf = ({ inputTokens, outputTokens }) => ({
  prompt_tokens: inputTokens,
  completion_tokens: outputTokens,
});

async function* chat(job, prompt) {
  const provider = createOpenAICompatible({
    name: "inkwell",
    baseURL: job.url,
    apiKey: job.key,
    includeUsage: true,
  });
  const request = { model: provider(job.model), prompt };
  if (!job.stream) {
    const { text, usage } = await generateText(request);
    yield text;
    yield usageOf(usage);
    return;
  }
  // Without `onError` it prints errors to the console.
  for await (const part of streamText({ ...request, onError: () => {} }).fullStream) {
    if (part.type === "text-delta") yield part.text;
    if (part.type === "error") throw part.error.lastError ?? part.error;
    if (part.type === "finish") yield usageOf(part.totalUsage);
  }
}

run(chat, null);
