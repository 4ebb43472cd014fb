/** The models that the session may use. */
import { apiPath, get } from "../shared/api.ts";
import { type Loaded, useLoaded } from "../shared/use-loaded.ts";
import type { UsableModel } from "./types.ts";

export function useModels(): Loaded<{ data: UsableModel[] }> {
  return useLoaded("models", (signal) => get<{ data: UsableModel[] }>(apiPath("models"), {}, signal));
}
