/** Recognises requests for the likeliest token. Pure. */
import type { Sampling } from "../../chat/engine.ts";

/**
 * Lower temperatures count as 0. Logits are single floats, mostly between 1 and 30, and differ by
 * at least 1e-7 to 2e-6. At this temperature only near ties are still random. At about 1e-37 a
 * logit divided by the temperature overflows a single float, and the result is random nonsense.
 */
const temperatureMin = 1e-6;

export function isGreedy({ temperature, topP }: Sampling): boolean {
  return (temperature !== undefined && temperature < temperatureMin) || topP === 0;
}
