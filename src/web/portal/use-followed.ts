/** Loads data again after a change that the live stream reports. */
import { useEffect, useRef } from "preact/hooks";
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

/** `change` is undefined until the stream begins, and then another value after each change. */
export function useFollowed({ reload }: Loaded<unknown>, change: unknown): void {
  const before = useRef<unknown>(undefined);
  useEffect(() => {
    const isFirst = before.current === undefined;
    before.current = change;
    if (isFirst) return;
    if (Date.now() - usedMs < unusedMsMax) reload();
  }, [change]);
}
