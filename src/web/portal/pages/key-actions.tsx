/** Dialogs for keys. A new secret is shown once, and limits of the session's key stand at the fields. */
import { changeOwnKey, makeOwnKey, revokeOwnKey, rotateOwnKey } from "../../../actions/portal.ts";
import { dayMs } from "../../../units.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { apiPath, get } from "../../shared/api.ts";
import { ChangeKeyDialog, NewKeyDialog, RotateKeyDialog } from "../../shared/key-dialogs.tsx";
import { keyTitle } from "../../shared/key-values.tsx";
import { counted } from "../../shared/numbers.ts";
import type { Key, Page, Receipt } from "../../shared/types.ts";
import { Time } from "../../shared/values.tsx";
import type { OwnAccount } from "../types.ts";

interface Props {
  of: Key;
  /** Whether it is the key of the session. */
  isOwn: boolean;
  close(isDone: boolean): void;
}

/** `own`: the key or the person that creates it. A key of a person may have to expire. */
export function CreateKey({ own, close }: { own: OwnAccount; close(isDone: boolean): void }) {
  return (
    <NewKeyDialog
      action={makeOwnKey}
      publicUrl={own.public_url}
      {...(own.key === null ? { intro: "The key uses the credits of your account." } : { creator: own.key })}
      {...(own.rights.latest_expiry === null ? {} : { latestExpiry: own.rights.latest_expiry })}
      close={close}
    />
  );
}

/** `creator` is the key of the session. If it has a cap, only names can be changed. */
export function ChangeKey({ of: key, creator, close }: Omit<Props, "isOwn"> & { creator: Key | null }) {
  const isOwn = key.id === creator?.id;
  const intro = isOwn && (
    <>
      <p>{changeOwnKey.form?.intro}</p>
      <p>
        <strong>You are signed in with this key.</strong> It can give itself less, and only the operator can
        give it more again. With a spending cap it can no longer create keys or change their settings.
      </p>
    </>
  );
  const ofName = {
    intro: <p>Your key has a spending cap, so it can change the names of keys only.</p>,
    only: ["name"],
  };
  return (
    <ChangeKeyDialog
      action={changeOwnKey}
      of={key}
      name={keyTitle(key)}
      close={close}
      {...(creator === null ? {} : { creator })}
      {...(creator !== null && creator.spending_caps.length > 0 ? ofName : intro ? { intro } : {})}
    />
  );
}

export function RotateKey({ of: key, isOwn, publicUrl, close }: Props & { publicUrl: string | null }) {
  return (
    <RotateKeyDialog
      action={rotateOwnKey}
      publicUrl={publicUrl}
      of={key}
      name={keyTitle(key)}
      note={isOwn ? "You stay signed in here. Other sessions of this key end." : ""}
      close={close}
    />
  );
}

/** The preview shows whether somebody uses the key. */
export function RevokeKey({ of: key, isOwn, close }: Props) {
  return (
    <ActionDialog
      action={revokeOwnKey}
      target={{ key: key.id }}
      subject={keyTitle(key)}
      intro={<p>This cannot be undone. The preview shows what ends.</p>}
      preview={async () => {
        const query = {
          key: key.id,
          from: new Date(Date.now() - dayMs).toISOString(),
          limit: 100,
        };
        const { data, next } = await get<Page<Receipt>>(apiPath("requests"), query);
        const count = `${next === null ? "" : "more than "}${counted(data.length, "request")}`;
        return (
          <ul>
            <li>
              Requests with the secret …{key.last_four} are refused from now on; running ones may finish. In
              the last 24 hours it made {count}. It was last used <Time at={key.last_used_at} />.
            </li>
            {key.old_secret_until !== null && <li>Its secret from before the rotation ends too.</li>}
            <li>
              {isOwn ? (
                <strong>You are signed in with this key: this session ends too.</strong>
              ) : (
                "Sessions of this key in the portal end."
              )}
            </li>
            <li>The receipts of the key stay.</li>
          </ul>
        );
      }}
      close={close}
    />
  );
}
