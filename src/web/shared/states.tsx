/** What stands in the place of data: while it loads, if it failed, if there is none. */

import type { ComponentChildren } from "preact";
import { Button } from "./button.tsx";
import type { Loaded } from "./use-loaded.ts";

export function Failure({ error, retry }: { error: Error; retry?: () => void }) {
  return (
    <div class="notice bad" role="alert">
      <p>{error.message}</p>
      {retry && <Button onClick={retry}>Try again</Button>}
    </div>
  );
}

export function Warnings({ of }: { of: readonly string[] }) {
  return of.map((warning) => (
    <p key={warning} class="notice warn">
      {warning}
    </p>
  ));
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="empty">{children}</div>;
}

/** Shows loaded data, or the state it is in. Data that is loaded again stays visible. */
export function Shown<T>({ of, children }: { of: Loaded<T>; children: (value: T) => ComponentChildren }) {
  const failure = of.error && <Failure error={of.error} retry={of.reload} />;
  if (of.value === null) return failure ?? <p class="loading quiet">Loading …</p>;
  return (
    <>
      {failure}
      <div class={of.isLoading ? "stale" : ""} aria-busy={of.isLoading}>
        {children(of.value)}
      </div>
    </>
  );
}
