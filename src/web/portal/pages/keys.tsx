/** The keys that the session may see: creating, changing, rotating and revoking them. */
import { periodTitle } from "../../../actions/fields.ts";
import { apiPath } from "../../shared/api.ts";
import { KeyCaps, keyCells, keyNames, limitsOf } from "../../shared/key-values.tsx";
import { ResourceList } from "../../shared/resource-page.tsx";
import { columnsOf } from "../../shared/table.tsx";
import type { Key } from "../../shared/types.ts";
import type { OwnAccount } from "../types.ts";
import { keysMax } from "../use-own.ts";
import { createKey, keyActions } from "./key-actions.tsx";

export function KeysPage({ own, changed }: { own: OwnAccount; changed(): void }) {
  const { rights } = own;
  const isOwn = (key: Key) => key.id === own.key?.id;
  return (
    <ResourceList<Key>
      path={apiPath("keys")}
      limit={keysMax}
      caption="Keys"
      empty="No key yet."
      columns={columnsOf("key", keyNames, {
        ...keyCells,
        name: (key: Key) => (
          <>
            {keyCells.name(key)}
            {isOwn(key) && <span class="quiet"> (signed in)</span>}
          </>
        ),
        spending_caps: (key: Key) => <KeyCaps of={key} />,
        models: ({ models }: Key) => (models.includes("*") ? "all" : models.join(", ")),
      })}
      rowActions={{ title: "Change", actions: keyActions(own) }}
      actions={rights.can_create_keys ? [createKey(own)] : []}
      heading={rights.keys === "own" ? "Your key" : "Keys"}
      above={
        <>
          {rights.why_not !== null && <p class="notice">{rights.why_not}</p>}
          {own.key === null && <p class="quiet above">{allowedKeys(own)}</p>}
          <p class="quiet above">
            Limits of the plan {own.plan.id}, for all keys of the account together: {limitsOf(own.plan)}. A
            limit of a key counts in addition.
          </p>
        </>
      }
      changed={changed}
    />
  );
}

/** How many keys a person may have, and for how long. */
function allowedKeys({ rights: { most_keys: most, key_life: life } }: OwnAccount): string {
  const count = most === 1 ? "one key that works" : `${most} keys that work at the same time`;
  return `You may have ${count}${life === null ? "" : `. A key lives for ${periodTitle(life).replace(/^(?=[a-z])/, "one ")} at most`}.`;
}
