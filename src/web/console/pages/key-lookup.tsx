/** Finds whose key a secret is. The secret is in the body of the request only, and in no address. */

import { apiPath, send } from "../../shared/api.ts";
import { FormDialog } from "../../shared/form-dialog.tsx";
import { go, pathTo } from "../../shared/router.tsx";
import type { KeyOfSecret } from "../types.ts";

export function LookUpKey({ close }: { close(): void }) {
  return (
    <FormDialog
      title="Whose key is this?"
      kind="lookup"
      submit="Find the account"
      intro={<p>Nothing is changed or stored. The page of the account's keys opens.</p>}
      fields={[{ name: "key", label: "API key", kind: "secret", isRequired: true }]}
      send={async ({ key = "" }) => {
        const found = await send<KeyOfSecret>("POST", apiPath("keys", "lookup"), { key: key.trim() });
        const { id, account } = found.key;
        go(pathTo("accounts", account, "keys"));
        const secret = found.secret === "present" ? "" : ", with its secret before the last rotation";
        return { done: `It is the key ${id} of ${account}${secret}.` };
      }}
      close={close}
    />
  );
}
