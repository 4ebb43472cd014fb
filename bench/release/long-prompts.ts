/**
 * 150 clients with prompts of 220 KB, as agents send them: 100 messages. Before an upstream of one
 * token, and to the embedded engine, whose window they exceed: it refuses them, and the floor is a
 * bare Fastify that reads them and answers at once.
 */

import { startLlamaService } from "../llama-service.ts";
import { defaultModel } from "../options.ts";
import { cores, startServer } from "../servers.ts";
import {
  compared,
  figuresOf,
  type MeasuredRun,
  measureRun,
  type Options,
  type Result,
  rotated,
  startBare,
  startInkwell,
  type Target,
} from "./measure.ts";

const clients = 150;
const promptBytes = 220_000;
const words = "and then the ship sailed on across the quiet sea, ";

function bodyOf(model: string) {
  const content = words.repeat(Math.ceil(promptBytes / 100 / words.length)).slice(0, promptBytes / 100);
  const messages = Array.from({ length: 100 }, (_, n) => ({
    role: n % 2 === 0 ? "user" : "assistant",
    content,
  }));
  return { model, messages, max_tokens: 1 };
}

export async function longPrompts(asked: Options): Promise<Result[]> {
  const options = { ...asked, clients };
  const side = (model: string, status: number, start: () => Promise<Target & AsyncDisposable>) => ({
    body: bodyOf(model),
    status,
    start,
    passes: [] as MeasuredRun[],
  });
  const embedded = { model: defaultModel, parallel: 4, contextWindow: 8192, accounts: clients };
  const upstream = side("short", 200, () => startInkwell(options));
  const bare = side("short", 200, () => startBare(options));
  const refusing = side("bench", 400, () => startLlamaService({ ...embedded, core: cores.server }));
  const reading = side("bench", 200, () => startServer({ which: "bare", clients }));
  for (let pass = 0; pass < options.passes; pass += 1) {
    for (const { body, status, start, passes } of rotated([upstream, bare, refusing, reading], pass)) {
      await using server = await start();
      passes.push(await measureRun(server, { body, status, seconds: options.seconds }));
    }
  }
  return [
    {
      workload: "150 clients with prompts of 220 KB, upstream of one token",
      ...compared(upstream.passes, bare.passes),
      target: "1,000 requests/s, or 0.50",
      figures: [
        ["Inkwell", figuresOf(upstream.passes)],
        ["bare, one JSON object", figuresOf(bare.passes)],
      ],
    },
    {
      workload:
        "the same to the embedded engine with a window of 8,192 tokens, which refuses them (`context_length_exceeded`); the floor reads them and answers at once",
      ...compared(refusing.passes, reading.passes),
      target: "none",
      figures: [
        ["Inkwell, refusals", figuresOf(refusing.passes)],
        ["bare Fastify", figuresOf(reading.passes)],
      ],
    },
  ];
}
