/** Loads data again after a change that the live state shows. */
import { useEffect } from "preact/hooks";
import type { Loaded } from "../shared/use-loaded.ts";

/**
 * `change` is undefined until the state is there, and then another value after each change. The
 * first value counts, too: a change before it may have come after the data. Data that is followed
 * is loaded with `getUnattended`, since an open page does not prolong its session.
 */
export function useFollowed({ reload }: Loaded<unknown>, change: unknown): void {
  useEffect(() => {
    if (change !== undefined) reload();
  }, [change]);
}
