/**
 * Asks a model twenty everyday questions at temperature 0, with several system prompts, and prints
 * the answers as Markdown for a person to judge. Decision 0066 has the judgements for the default
 * model.
 *
 *   npx node tools/try-system-prompts.ts http://127.0.0.1:8080/v1 MODEL > answers.md
 *
 * `INKWELL_API_KEY` is the key. Requests run one after another, so the answers repeat exactly.
 */
import OpenAI from "openai";

/** Undefined: no system message, so that the chat template decides. */
const candidates = new Map<string, string | undefined>([
  ["template", undefined],
  ["empty", ""],
  ["assistant", "You are a helpful assistant."],
  ["brief", "You are a helpful assistant. Give short and correct answers."],
  ["task", "Answer the question or do the task, clearly and briefly."],
  ["language", "You are a helpful assistant. Answer in the language of the user."],
  ["adjectives", "Be helpful, correct and concise."],
  ["knowledgeable", "You are a friendly and knowledgeable assistant."],
  ["honest", "You are a helpful, honest assistant. Follow the user's instructions."],
]);

const questions = [
  "What is the capital of France?",
  "Who wrote Romeo and Juliet?",
  "How many days are there in a leap year?",
  "What is the largest planet in the solar system?",
  "At what temperature does water boil at sea level, in degrees Celsius?",
  "Why is the sky blue? Answer in two sentences.",
  "What is 7 + 5?",
  "What is 12 times 3?",
  "I have 20 euros and buy two books at 6 euros each. How much is left?",
  "Write a short e-mail to my boss. I am ill today and cannot come to work.",
  "Write a short thank-you note to a friend who helped me move.",
  "List five fruits.",
  "Give me three tips for better sleep.",
  'Translate into Spanish: "Good morning, how are you?"',
  'Translate into German: "The house is small."',
  'Correct the grammar: "She go to school yesterday."',
  'Make this sentence more polite: "Send me the report now."',
  "Hello! How are you?",
  "Write a Python function that returns the sum of two numbers.",
  "Summarise in one sentence: The bakery on Main Street opened in 1952. It is known for its rye bread. " +
    "Last week it closed, because its owners retired.",
];

const tokensMax = 120;

const [baseURL, model] = process.argv.slice(2);
if (baseURL === undefined || model === undefined) throw new Error("usage: try-system-prompts.ts URL MODEL");
const client = new OpenAI({ baseURL, apiKey: process.env.INKWELL_API_KEY, maxRetries: 0 });

for (const [name, system] of candidates) {
  console.log(`# ${name}: ${system === undefined ? "no system message" : JSON.stringify(system)}\n`);
  for (const [index, question] of questions.entries()) {
    const { choices, usage } = await client.chat.completions.create({
      model,
      messages: [
        ...(system === undefined ? [] : [{ role: "system" as const, content: system }]),
        { role: "user" as const, content: question },
      ],
      temperature: 0,
      max_tokens: tokensMax,
    });
    const { prompt_tokens: prompt, completion_tokens: made } = usage ?? {};
    console.log(`## ${index + 1}. ${question} (${prompt} + ${made} tokens, ${choices[0]?.finish_reason})\n`);
    console.log(`${choices[0]?.message.content ?? ""}\n`);
  }
}
