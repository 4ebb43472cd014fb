/** The keys that the session may see: creating, changing, rotating and revoking them. */
import { useAction } from "../../shared/form-dialog.tsx";
import { changeColumn, KeyBudget, keyCells, limitsOf, periodTitle } from "../../shared/key-values.tsx";
import { PageHead } from "../../shared/layout.tsx";
import { columnsOf, ShownTable } from "../../shared/table.tsx";
import type { Key } from "../../shared/types.ts";
import { keyTitle, useKeys } from "../key-names.ts";
import type { OwnAccount } from "../types.ts";
import { ChangeKey, CreateKey, RevokeKey, RotateKey } from "./key-actions.tsx";

export function KeysPage({ own, changed }: { own: OwnAccount; changed(): void }) {
  const keys = useKeys();
  const { open, show, close } = useAction<string>(() => {
    keys.reload();
    changed();
  });
  const { rights } = own;
  const [action, id] = open?.split(" ") ?? [];
  const chosen = keys.value?.data.find((key) => key.id === id);
  const actions = rights.keys === "own" ? ["Rotate"] : ["Edit", "Rotate", "Revoke"];
  return (
    <>
      <PageHead title={rights.keys === "own" ? "Your key" : "Keys"}>
        {rights.can_create_keys && (
          <button type="button" class="primary" onClick={() => show("create")}>
            Create a key
          </button>
        )}
      </PageHead>
      {rights.why_not !== null && <p class="notice">{rights.why_not}</p>}
      {own.key === null && <p class="quiet above">{allowedKeys(own)}</p>}
      <p class="quiet above">
        Limits of the plan {own.plan.id}, for all keys of the account together: {limitsOf(own.plan)}. A limit
        of a key counts in addition.
      </p>
      <ShownTable
        of={keys}
        caption="Keys"
        columns={[
          ...columnsOf("key", "name last_four revoked_at budget limits models expires_at last_used_at", {
            ...keyCells,
            name: (key: Key) => (
              <>
                {keyCells.name(key)}
                {key.id === own.key?.id && <span class="quiet"> (signed in)</span>}
              </>
            ),
            budget: (key: Key) => <KeyBudget of={key} period={() => ", refills"} />,
            models: ({ models }: Key) => (models.includes("*") ? "all" : models.join(", ")),
          }),
          changeColumn({ actions, nameOf: keyTitle, show }),
        ]}
      />
      {action === "create" && <CreateKey own={own} close={close} />}
      {chosen && action === "edit" && <ChangeKey of={chosen} creator={own.key} close={close} />}
      {chosen && action === "rotate" && (
        <RotateKey of={chosen} isOwn={chosen.id === own.key?.id} close={close} />
      )}
      {chosen && action === "revoke" && (
        <RevokeKey of={chosen} isOwn={chosen.id === own.key?.id} close={close} />
      )}
    </>
  );
}

/** How many keys a person may have, and for how long. */
function allowedKeys({ rights: { most_keys: most, key_life: life } }: OwnAccount): string {
  const count = most === 1 ? "one key that works" : `${most} keys that work at the same time`;
  return `You may have ${count}${life === null ? "" : `. A key lives for ${periodTitle(life)} at most`}.`;
}
