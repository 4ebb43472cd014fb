// Streams an answer with the OpenAI SDK for Node.
//
//   INKWELL_KEY=ink_... node examples/chat.mjs "What is an inkwell?"
import OpenAI from "openai";

const { INKWELL_URL = "http://127.0.0.1:8080", INKWELL_KEY, INKWELL_MODEL } = process.env;
const client = new OpenAI({ baseURL: `${INKWELL_URL}/v1`, apiKey: INKWELL_KEY });
const [question = "What is an inkwell?"] = process.argv.slice(2);

try {
  const model = INKWELL_MODEL ?? (await client.models.list()).data[0].id;
  const stream = await client.chat.completions.create({
    model,
    stream: true,
    stream_options: { include_usage: true },
    messages: [{ role: "user", content: question }],
  });
  for await (const { choices, usage } of stream) {
    process.stdout.write(choices[0]?.delta.content ?? "");
    if (usage) console.log(`\n${usage.prompt_tokens} + ${usage.completion_tokens} tokens`);
  }
} catch (error) {
  if (!(error instanceof OpenAI.APIError && ["insufficient_credits", "cap_reached"].includes(error.code)))
    throw error;
  // The message has the cost, what is left, and the remedies that help.
  console.error(error.message);
  process.exitCode = 1;
}
