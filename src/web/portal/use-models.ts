/** The models that the session may use. */
import { apiPath } from "../shared/api.ts";
import { type Loaded, useGet } from "../shared/use-loaded.ts";
import type { UsableModel } from "./types.ts";

export function useModels(): Loaded<{ data: UsableModel[] }> {
  return useGet(apiPath("models"));
}
