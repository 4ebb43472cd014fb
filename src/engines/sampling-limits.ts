/** Limits of sampling parameters, which all engines share. Pure. */
import type { Sampling } from "../chat/engine.ts";

/** Upper bound of `top_k`, which engines read as a 32-bit number. */
export const topKMax = 0x7fffffff;

/**
 * Lower temperatures count as 0. Logits are single floats, mostly between 1 and 30, and differ by
 * at least 1e-7 to 2e-6. At this temperature only near ties are still random. At about 1e-37 a
 * logit divided by the temperature overflows a single float, and the result is random nonsense.
 */
const temperatureMin = 1e-6;

/** Returns whether the request asks for the likeliest token. */
export function isGreedy({ temperature, topP }: Sampling): boolean {
  return (temperature !== undefined && temperature < temperatureMin) || topP === 0;
}

/** Number of alternatives for each token, or null if the request wants no log-probabilities. */
export function alternativesOf({ logprobs, topLogprobs = 0 }: Sampling): number | null {
  return logprobs === true ? topLogprobs : null;
}

export function clampPenalty(penalty: number): number {
  return Math.min(2, Math.max(-2, penalty));
}
