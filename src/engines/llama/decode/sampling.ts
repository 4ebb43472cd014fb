/**
 * Converts a request's sampling parameters to llama.cpp's samplers.
 *
 * Missing parameters get OpenAI's defaults (temperature 1, top_p 1, no penalties), not the
 * library's (top_k 40, top_p 0.95). Seeds are reduced to 32 bits, penalties are clamped to -2 to
 * 2. Pure, except for a random seed.
 */
import { randomInt } from "node:crypto";
import type { Sampling } from "../../../chat/engine.ts";
import { clampPenalty, isGreedy, topKMax } from "../../sampling-limits.ts";
import type { SamplerConfig } from "./native-backend.ts";

/** Means "random" to llama.cpp. A request with this seed gets the seed below. */
const randomSeed = 0xffffffff;

/** Returns whether the same request must return the same text. */
export function isRepeatable(sampling: Sampling): boolean {
  return sampling.seed !== undefined || isGreedy(sampling);
}

/** `tokensMax`: length of the longest completion. Penalties look back over all of it. */
export function samplerConfig(sampling: Sampling, tokensMax: number): SamplerConfig {
  const config: SamplerConfig = { temperature: 0, seed: seedOf(sampling.seed) };
  if (!isGreedy(sampling)) {
    config.temperature = sampling.temperature ?? 1;
    // Left out if they have no effect: a top_k of the whole vocabulary sorts it, 5 ms per token
    // instead of 0.5.
    if (sampling.topP !== undefined && sampling.topP < 1) config.topP = sampling.topP;
    if (sampling.topK !== undefined && sampling.topK > 0) config.topK = Math.min(sampling.topK, topKMax);
  }
  const presence = clampPenalty(sampling.presencePenalty ?? 0);
  const frequency = clampPenalty(sampling.frequencyPenalty ?? 0);
  if (presence !== 0 || frequency !== 0) {
    config.repeatPenaltyTokens = new Uint32Array(0);
    config.repeatPenaltyMaxTokens = tokensMax;
    config.repeatPenaltyPresencePenalty = presence;
    config.repeatPenaltyFrequencyPenalty = frequency;
  }
  return config;
}

export function seedOf(seed: number | undefined): number {
  if (seed === undefined) return randomInt(randomSeed);
  return Math.min(Number(BigInt.asUintN(32, BigInt(seed))), randomSeed - 1);
}
