/** The keys that the session may see: creating, changing, rotating and revoking them. */
import { changeOwnKey, revokeOwnKey, rotateOwnKey } from "../../../actions/portal.ts";
import { apiPath } from "../../shared/api.ts";
import { KeyCaps, keyAction, keyCells, keyNames, limitsOf, periodTitle } from "../../shared/key-values.tsx";
import { PageHead } from "../../shared/layout.tsx";
import { type ListAction, ResourceList } from "../../shared/resource-page.tsx";
import { columnsOf } from "../../shared/table.tsx";
import type { Key } from "../../shared/types.ts";
import { keysMax } from "../key-names.ts";
import type { OwnAccount } from "../types.ts";
import { ChangeKey, CreateKey, RevokeKey, RotateKey } from "./key-actions.tsx";

export function KeysPage({ own, changed }: { own: OwnAccount; changed(): void }) {
  const { rights } = own;
  const isOwn = (key: Key) => key.id === own.key?.id;
  const create: ListAction = {
    title: "Create a key",
    look: "primary",
    dialog: (close) => <CreateKey own={own} close={close} />,
  };
  const edit = keyAction("Edit", changeOwnKey, (key, close) => (
    <ChangeKey of={key} creator={own.key} close={close} />
  ));
  const rotate = keyAction("Rotate", rotateOwnKey, (key, close) => (
    <RotateKey of={key} isOwn={isOwn(key)} publicUrl={own.public_url} close={close} />
  ));
  const revoke = keyAction("Revoke", revokeOwnKey, (key, close) => (
    <RevokeKey of={key} isOwn={isOwn(key)} close={close} />
  ));
  return (
    <ResourceList<Key>
      path={apiPath("keys")}
      limit={keysMax}
      caption="Keys"
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
      rowActions={{ title: "Change", actions: rights.keys === "own" ? [rotate] : [edit, rotate, revoke] }}
      actions={rights.can_create_keys ? [create] : []}
      frame={(buttons, list) => (
        <>
          <PageHead title={rights.keys === "own" ? "Your key" : "Keys"}>{buttons}</PageHead>
          {rights.why_not !== null && <p class="notice">{rights.why_not}</p>}
          {own.key === null && <p class="quiet above">{allowedKeys(own)}</p>}
          <p class="quiet above">
            Limits of the plan {own.plan.id}, for all keys of the account together: {limitsOf(own.plan)}. A
            limit of a key counts in addition.
          </p>
          {list}
        </>
      )}
      changed={changed}
    />
  );
}

/** How many keys a person may have, and for how long. */
function allowedKeys({ rights: { most_keys: most, key_life: life } }: OwnAccount): string {
  const count = most === 1 ? "one key that works" : `${most} keys that work at the same time`;
  return `You may have ${count}${life === null ? "" : `. A key lives for ${periodTitle(life)} at most`}.`;
}
