/** Which requests ask for the likeliest token. Pure. */
import type { Sampling } from "../../chat/engine.ts";

/**
 * Below this a temperature is taken for 0. Logits are single floats, mostly of 1 to 30: two that differ at all differ by 1e-7
 * to 2e-6, so this near to 0 only what is all but a tie is still drawn by lot. Much lower, from about 1e-37, a logit divided
 * by it is beyond the largest single float, and the draw is from nonsense.
 */
const temperatureMin = 1e-6;

export function isGreedy({ temperature, topP }: Sampling): boolean {
  return (temperature !== undefined && temperature < temperatureMin) || topP === 0;
}
