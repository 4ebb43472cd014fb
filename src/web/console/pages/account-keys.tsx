/** The keys of an account with their limits and caps. */
import { changeKey, makeKey, revokeKey, rotateKey } from "../../../actions/keys.ts";
import { apiPath } from "../../shared/api.ts";
import { changedKeyParts, newKeyParts, rotatedKeyParts } from "../../shared/key-dialogs.tsx";
import { KeyCaps, keyAction, keyCells, keyNames } from "../../shared/key-values.tsx";
import { type ListAction, ResourceList } from "../../shared/resource-page.tsx";
import { columnsOf } from "../../shared/table.tsx";
import type { Key } from "../../shared/types.ts";
import type { AccountTabProps } from "./account-tab.ts";

const keysMax = 500;

const columns = columnsOf("key", `${keyNames} portal`, {
  ...keyCells,
  portal: ({ portal, acts_for }: Key) =>
    acts_for !== null ? `front end ${acts_for.name}` : portal === "own" ? "sees itself" : "manages all keys",
  spending_caps: (key: Key) => <KeyCaps of={key} />,
});

const rowActions = [
  keyAction("Edit", changeKey, (key) => changedKeyParts(key)),
  keyAction("Rotate", rotateKey, () => rotatedKeyParts(rotateKey, null)),
  keyAction("Revoke", revokeKey),
];

export function AccountKeys({ account: { id, state } }: AccountTabProps) {
  const parts = { target: { account: id }, subject: id, ...newKeyParts(null) };
  const make: ListAction = { title: "Create a key", action: makeKey, look: "primary", parts };
  return (
    <ResourceList<Key>
      path={apiPath("accounts", id, "keys")}
      limit={keysMax}
      caption="Keys of the account"
      columns={columns}
      rowActions={{ title: "Change", actions: rowActions }}
      actions={state === "closed" ? [] : [make]}
      command={`key create ${id}`}
      empty="This account has no key yet. Create one, and give its secret to the client."
      more={<p class="quiet">The first {keysMax} keys are shown. The operator API lists all of them.</p>}
    />
  );
}
