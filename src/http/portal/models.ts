/** `/api/models`: the models that the key may use, with their prices. */
import Type from "typebox";
import { closed, count, objectFor, text } from "../../accounts/json-objects.ts";
import { longestAnswer, type Model } from "../../chat/catalog.ts";
import { type ApiApp, route } from "../api/app.ts";
import { pricingObject } from "../openai-format/response.ts";
import { type PortalDependencies, usableModels } from "./dependencies.ts";
import { sessionOf } from "./sign-in.ts";

export const modelObject = objectFor<Model>("UsableModel")({
  id: [text, (model) => model.id],
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

export function modelRoutes(app: ApiApp, { catalog }: PortalDependencies): void {
  app.get(
    "/api/models",
    route("listModels", {
      summary: "List the models that the key may use, with their prices",
      response: { 200: closed({ data: Type.Array(modelObject.schema) }) },
    }),
    async (request) => ({
      data: usableModels(catalog, sessionOf(request)).map(modelObject.of),
    }),
  );
}
