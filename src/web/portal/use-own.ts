/** What several pages read of the session: its keys with their names, and its models. */
import { apiPath } from "../shared/api.ts";
import { keyTitle } from "../shared/key-values.tsx";
import type { Key, Page } from "../shared/types.ts";
import { type Loaded, useGet, useList } from "../shared/use-loaded.ts";
import type { UsableModel } from "./types.ts";

/** An account has no more of them. */
export const keysMax = 500;

export function useKeys(): Loaded<Page<Key>> {
  return useList<Key>(apiPath("keys"), { limit: keysMax });
}

/** Returns the names of keys by id. Keys that are not loaded keep their id. */
export function useKeyNames(): (id: string) => string {
  const keys = useKeys();
  const names = new Map(keys.value?.data.map((key) => [key.id, keyTitle(key)]));
  return (id) => names.get(id) ?? id;
}

/** The models that the session may use. */
export function useModels(): Loaded<{ data: UsableModel[] }> {
  return useGet(apiPath("models"));
}
