/**
 * Loads llama.cpp and a model, and creates the context that the decode loop uses.
 *
 * Guarantees: every failure is an `OperatorError` that names the problem: the file, the GPU, the
 * memory or the installation. Binaries are never built or downloaded here.
 */
import {
  getLlama,
  type Llama,
  type LlamaContext,
  LlamaLogLevel,
  type LlamaModel,
  NoBinaryFoundError,
} from "node-llama-cpp";
import { messageOf, OperatorError } from "../../../errors.ts";
import type { PromptTokenizer } from "../prompt/prompt-builder.ts";
import { Vocabulary } from "../prompt/vocabulary.ts";
import type { Gpu, LoadedModel, LoadOptions } from "../protocol.ts";
import { type Backend, NativeBackend, nativeOf } from "./native-backend.ts";
import { ThreadGovernor } from "./thread-governor.ts";

/**
 * Prompts are evaluated in chunks of this many tokens, so that a long prompt delays other answers'
 * tokens only briefly. On a CPU, chunks of 64 cost no more per token than chunks of 512 (5.6 ms of
 * CPU time each; chunks of 32 cost 7.6). GPUs need larger chunks.
 */
const chunkTokens = { cpu: 64, gpu: 512 };
/** Room in a batch for each sequence's next tokens, which may be a whole closing tag. */
const tokensPerSequenceMax = 16;
const complaintsMax = 20;

export interface LoadedBackend extends PromptTokenizer, LoadedModel {
  backend: Backend;
  isEndOfTurn: (token: number) => boolean;
  bosText: string;
  eosText: string;
  /** Chat template of the model's file, or null. */
  template: string | null;
}

type Log = (level: "info" | "warn" | "error", message: string) => void;

export async function loadBackend(options: LoadOptions, log: Log): Promise<LoadedBackend> {
  const { modelPath, parallel, threads, threadsMax = threads } = options;
  const complaints: string[] = [];
  const llama = await loadLibrary(options, threadsMax, (level, message) => {
    if (level === "error" && complaints.length < complaintsMax) complaints.push(message);
    log(level, message);
  });
  let model: LlamaModel;
  let context: LlamaContext;
  try {
    model = await llama.loadModel({ modelPath });
  } catch (cause) {
    const why = diagnosis(await reason(cause, complaints));
    throw new OperatorError(`The model file ${modelPath} cannot be used: ${why}.`, cause);
  }
  const gpu = llama.gpu !== false && model.gpuLayers > 0;
  const governor = gpu || threadsMax === threads ? null : new ThreadGovernor(threads, threadsMax);
  const chunk = gpu ? chunkTokens.gpu : chunkTokens.cpu;
  const contextWindow = Math.min(options.contextWindow, model.trainContextSize);
  try {
    context = await model.createContext({
      sequences: parallel,
      contextSize: contextWindow,
      batchSize: chunk + parallel * tokensPerSequenceMax,
      threads,
    });
  } catch (cause) {
    throw new OperatorError(
      `The model file ${modelPath} cannot be used: there is not enough memory for ${parallel} sequences of ${contextWindow} tokens (${await reason(cause, complaints)}); make context_window or parallel smaller.`,
      cause,
    );
  }
  const { metadata } = model.fileInfo;
  const { ggml } = metadata.tokenizer;
  const everyToken = [...model.iterateAllTokens()];
  const endOfTurn = new Set<number>(everyToken.filter((token) => model.isEogToken(token)));
  return {
    backend: new NativeBackend(nativeOf(llama, model, context), chunk, governor),
    vocabulary: new Vocabulary({
      kind: ggml.model,
      tokens: ggml.tokens,
      types: ggml.token_type,
      addSpacePrefix: ggml.add_space_prefix !== false,
      spell: (token) => {
        const known = everyToken[token];
        return known === undefined ? "" : model.detokenize([known]);
      },
    }),
    tokenize: (text, continues = false) =>
      Uint32Array.from(model.tokenize(text, false, continues ? "trimLeadingSpace" : undefined)),
    isEndOfTurn: (token) => endOfTurn.has(token),
    bos: model.tokens.shouldPrependBosToken ? model.tokens.bos : null,
    bosText: model.tokens.bosString ?? "",
    eosText: model.tokens.eosString ?? "",
    template: metadata.tokenizer.chat_template ?? null,
    contextWindow,
    sizeBytes: model.size,
    description: `${metadata.general?.name ?? model.filename ?? "unnamed"} (${model.typeDescription}, ${model.gpuLayers} layers on the GPU, ${governor === null ? threads : `${threads} or ${threadsMax}`} threads)`,
  };
}

async function loadLibrary({ gpu, modelPath }: LoadOptions, maxThreads: number, log: Log): Promise<Llama> {
  let llama: Llama;
  try {
    llama = await getLlama({
      gpu,
      build: "never",
      skipDownload: true,
      progressLogs: false,
      maxThreads,
      logLevel: LlamaLogLevel.warn,
      logger: (level, message) => {
        const failed = level === LlamaLogLevel.error || level === LlamaLogLevel.fatal;
        log(failed ? "error" : "warn", message.trim());
      },
    });
  } catch (cause) {
    if (!(cause instanceof NoBinaryFoundError)) throw cause;
    throw new OperatorError(withoutBinaries(gpu, modelPath), cause);
  }
  // If the library does not know a kind of GPU at all, it continues without one.
  if (gpu !== "auto" && llama.gpu !== gpu) throw new OperatorError(withoutBinaries(gpu, modelPath));
  return llama;
}

function withoutBinaries(gpu: Gpu, modelPath: string): string {
  if (gpu === "auto" || gpu === false)
    return `llama.cpp's binaries for this machine (${process.platform}, ${process.arch}) are missing or cannot be loaded: install Inkwell again (in a checkout: npm ci), remove LD_LIBRARY_PATH from the model's environment, or generate elsewhere (engine: upstream).`;
  const needs = {
    cuda: "its binaries, which npm run gpu fetches in a checkout (again after each npm ci), and NVIDIA's driver",
    vulkan: "a Vulkan driver for the GPU",
    metal: "a Mac with Apple silicon",
  };
  return `The model file ${modelPath} cannot be run with gpu: ${gpu} here: that needs ${needs[gpu]}. Set gpu: auto to use any GPU that works, gpu: off to use the processor alone.`;
}

/** Returns llama.cpp's own message, which may arrive after the failure. */
async function reason(cause: unknown, complaints: readonly string[]): Promise<string> {
  await new Promise((resolve) => setTimeout(resolve, 50));
  const words = complaints.find((line) => line.includes("error loading") && !line.includes("failed to load"));
  return words?.replace(/^.*error loading model: /, "") ?? complaints[0] ?? messageOf(cause);
}

function diagnosis(words: string): string {
  if (words.includes("unknown model architecture"))
    return `${words}; use a model that this version of llama.cpp knows`;
  if (words.includes("unable to allocate") || words.includes("out of memory"))
    return `${words}; use a smaller model`;
  return `it is damaged or cut short (${words}); fetch the file again`;
}
