/**
 * From a request's sampling parameters to llama.cpp's samplers.
 *
 * Pure but for the seed of a request that names none. What is absent has OpenAI's default (temperature 1, top_p 1,
 * no penalties), never the library's (top_k 40, top_p 0.95). A seed is folded to 32 bits, penalties are clamped to -2 to 2.
 */
import { randomInt } from "node:crypto";
import type { Sampling } from "../../../chat/engine.ts";
import { isGreedy } from "../../text/greedy.ts";
import type { SamplerConfig } from "./backend.ts";

const topKMax = 0x7fffffff;
/** To llama.cpp this seed means "choose one"; it shares the one below. */
const randomSeed = 0xffffffff;

/** Whether the same request must give the same text again. */
export function isRepeatable(sampling: Sampling): boolean {
  return sampling.seed !== undefined || isGreedy(sampling);
}

/** `tokensMax`: how many tokens the penalties look back over, which is the whole completion. */
export function samplerConfig(sampling: Sampling, tokensMax: number): SamplerConfig {
  const config: SamplerConfig = { temperature: 0, seed: seedOf(sampling.seed) };
  if (!isGreedy(sampling)) {
    config.temperature = sampling.temperature ?? 1;
    // Left out where they do nothing: a top_k of the whole vocabulary sorts it, 5 ms a token instead of 0.5.
    if (sampling.topP !== undefined && sampling.topP < 1) config.topP = sampling.topP;
    if (sampling.topK !== undefined && sampling.topK > 0) config.topK = Math.min(sampling.topK, topKMax);
  }
  const presence = clampPenalty(sampling.presencePenalty);
  const frequency = clampPenalty(sampling.frequencyPenalty);
  if (presence !== 0 || frequency !== 0) {
    config.repeatPenaltyTokens = new Uint32Array(0);
    config.repeatPenaltyMaxTokens = tokensMax;
    config.repeatPenaltyPresencePenalty = presence;
    config.repeatPenaltyFrequencyPenalty = frequency;
  }
  return config;
}

function clampPenalty(penalty: number | undefined): number {
  return Math.min(2, Math.max(-2, penalty ?? 0));
}

export function seedOf(seed: number | undefined): number {
  if (seed === undefined) return randomInt(randomSeed);
  return Math.min(Number(BigInt.asUintN(32, BigInt(seed))), randomSeed - 1);
}
