/**
 * The floor of `bench/engine.ts`: prompts decoded side by side by the library's own loop. Prints
 * tokens per second.
 */
import { getLlama, type Token } from "node-llama-cpp";

const [argument = ""] = process.argv.slice(2);
const settings: { model: string; threads: number; concurrent: number; tokens: number; promptTokens: number } =
  JSON.parse(argument);

const llama = await getLlama({ gpu: false, build: "never", progressLogs: false });
const model = await llama.loadModel({ modelPath: settings.model });
const context = await model.createContext({
  contextSize: 2048,
  sequences: settings.concurrent,
  threads: settings.threads,
});
const sequences = Array.from({ length: settings.concurrent }, () => context.getSequence());

async function decode(n: number, most: number): Promise<number> {
  const sequence = sequences[n];
  if (sequence === undefined) throw new Error("there is a sequence for each prompt");
  await sequence.clearHistory();
  const text = `Chapter ${100 + n}: write a very long, endless story about the sea, with many details, and do not stop early.\n`;
  const prompt: Token[] = [];
  while (prompt.length < settings.promptTokens) prompt.push(...model.tokenize(text));
  prompt.length = settings.promptTokens;
  let made = 0;
  for await (const _ of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })) {
    made += 1;
    if (made === most) break;
  }
  if (made !== most) throw new Error(`the loop ended after ${made} of ${most} tokens`);
  return made;
}

await Promise.all(sequences.map((_, n) => decode(n, 8)));
const startedMs = performance.now();
const made = await Promise.all(sequences.map((_, n) => decode(n, settings.tokens)));
const seconds = (performance.now() - startedMs) / 1000;
process.stdout.write(`${made.reduce((sum, each) => sum + each, 0) / seconds}\n`);
process.exit(0);
