/** The fields of a model that both operators and holders of keys see. */
import { closed, count, fieldsFor, text } from "../../accounts/json-objects.ts";
import { longestAnswer, type Model } from "../../chat/catalog.ts";
import { pricingObject } from "../openai-format/response.ts";

export const modelFields = fieldsFor<Model>()({
  id: [text, ({ id }) => id],
  state: [text, ({ engine }) => engine.state],
  context_window: [count, ({ engine }) => engine.contextWindow],
  max_output_tokens: [
    count,
    ({ engine, outputTokensMax }) => longestAnswer(engine.contextWindow, outputTokensMax),
  ],
  pricing: [
    closed({ prompt: count, completion: count, cached_prompt: count }),
    ({ price }) => pricingObject(price),
  ],
});
