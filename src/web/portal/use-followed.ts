/** Loads data again after a change that the live stream reports. */
import { useEffect } from "preact/hooks";
import type { Loaded } from "../shared/use-loaded.ts";

/** Requests prolong the session, which must end for a page that nobody uses. */
const unusedMsMax = 10 * 60_000;
let usedMs = Date.now();

function used(): void {
  usedMs = Date.now();
}

for (const event of ["pointerdown", "pointermove", "keydown", "scroll"]) {
  addEventListener(event, used, { passive: true });
}

/**
 * `change` is undefined until the stream begins, and then another value after each change. The
 * first value counts, too: a change before it may have come after the data.
 */
export function useFollowed({ reload }: Loaded<unknown>, change: unknown): void {
  useEffect(() => {
    if (change === undefined) return;
    if (Date.now() - usedMs < unusedMsMax) reload();
  }, [change]);
}
