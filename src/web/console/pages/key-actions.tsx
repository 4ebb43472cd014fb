/** Creating, changing, rotating and revoking a key. A new secret is shown once. */

import { ActionDialog } from "../../shared/action.tsx";
import { apiPath, send } from "../../shared/api.ts";
import { KeyForm, keyFields, NewKeyForm } from "../../shared/key-form.tsx";
import { RotateDialog } from "../../shared/key-values.tsx";
import type { Key } from "../../shared/types.ts";

interface Props {
  of: Key;
  close(isDone: boolean): void;
}

export function CreateKey({ account, close }: { account: string; close(isDone: boolean): void }) {
  return (
    <NewKeyForm
      title={`Create a key for ${account}`}
      path={apiPath("accounts", account, "keys")}
      fields={keyFields({})}
      close={close}
    />
  );
}

export function ChangeKey({ of: key, close }: Props) {
  return (
    <KeyForm
      title={`Edit the key ${key.name ?? `…${key.last_four}`}`}
      intro={<p>The next request of the key uses the new settings. Empty fields remove a setting.</p>}
      path={apiPath("keys", key.id)}
      fields={keyFields({ key })}
      close={close}
    />
  );
}

export function RotateKey({ of: key, close }: Props) {
  return (
    <RotateDialog
      name={key.name ?? `…${key.last_four}`}
      path={apiPath("keys", key.id, "rotate")}
      note={null}
      close={close}
    />
  );
}

export function RevokeKey({ of: key, close }: Props) {
  return (
    <ActionDialog
      title={`Revoke the key ${key.name ?? `…${key.last_four}`}`}
      kind="revoke"
      submit="Revoke for good"
      isDangerous
      intro={
        <p>
          Clients with this key are refused from now on; running requests may finish. This cannot be undone.
          The receipts of the key stay.
        </p>
      }
      send={async () => {
        await send("DELETE", apiPath("keys", key.id));
        return { done: "The key is revoked." };
      }}
      close={close}
    />
  );
}
