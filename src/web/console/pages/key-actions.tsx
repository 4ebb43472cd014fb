/** Creating, changing, rotating and revoking a key. A new secret is shown once. */
import { changeKey, makeKey, revokeKey, rotateKey } from "../../../actions/keys.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { ChangeKeyDialog, NewKeyDialog, RotateKeyDialog } from "../../shared/key-dialogs.tsx";
import type { Key } from "../../shared/types.ts";

interface Props {
  of: Key;
  close(isDone: boolean): void;
}

function nameOf({ name, last_four }: Key): string {
  return name ?? `…${last_four}`;
}

export function CreateKey({ account, close }: { account: string; close(isDone: boolean): void }) {
  return <NewKeyDialog action={makeKey} account={account} close={close} />;
}

export function ChangeKey({ of: key, close }: Props) {
  return <ChangeKeyDialog action={changeKey} of={key} name={nameOf(key)} close={close} />;
}

export function RotateKey({ of: key, close }: Props) {
  return <RotateKeyDialog action={rotateKey} of={key} name={nameOf(key)} close={close} />;
}

export function RevokeKey({ of: key, close }: Props) {
  return <ActionDialog action={revokeKey} target={{ key: key.id }} subject={nameOf(key)} close={close} />;
}
