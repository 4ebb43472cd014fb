/** `/api/models`: the models that the key may use, with their prices. */
import Type from "typebox";
import { closed, objectFor } from "../../accounts/json-objects.ts";
import type { Model } from "../../chat/catalog.ts";
import { type ApiApp, route } from "../api/app.ts";
import { modelFields } from "../api/model-fields.ts";
import { type PortalDependencies, usableModels } from "./dependencies.ts";
import { sessionOf } from "./sign-in.ts";

export const modelObject = objectFor<Model>("UsableModel")(modelFields);

export function modelRoutes(app: ApiApp, { catalog }: PortalDependencies): void {
  app.get(
    "/api/models",
    route("listModels", {
      summary: "List the models that the key may use, with their prices",
      response: { 200: closed({ data: Type.Array(modelObject.schema) }) },
    }),
    async (request) => ({ data: usableModels(catalog, sessionOf(request)).map(modelObject.of) }),
  );
}
