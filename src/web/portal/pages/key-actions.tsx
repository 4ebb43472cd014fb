/** Actions on keys. A new secret is shown once, and limits of the session's key stand at the fields. */
import { changeOwnKey, makeOwnKey, revokeOwnKey, rotateOwnKey } from "../../../actions/portal.ts";
import { dayMs } from "../../../units.ts";
import { apiPath, get } from "../../shared/api.ts";
import { changedKeyParts, newKeyParts, rotatedKeyParts } from "../../shared/key-dialogs.tsx";
import { keyAction } from "../../shared/key-values.tsx";
import { counted } from "../../shared/numbers.ts";
import type { ListAction, Parts } from "../../shared/resource-page.tsx";
import type { Key, Page, Receipt } from "../../shared/types.ts";
import { Time } from "../../shared/values.tsx";
import type { OwnAccount } from "../types.ts";

/** The key or the person of the session creates it. A key of a person may have to expire. */
export function createKey({ key, rights, public_url: publicUrl }: OwnAccount): ListAction {
  const intro = key === null && { intro: "The key uses the credits of your account." };
  return {
    title: "Create a key",
    look: "primary",
    action: makeOwnKey,
    parts: { ...newKeyParts(publicUrl, key, rights.latest_expiry), ...intro },
  };
}

export function keyActions({ key: own, rights, public_url: publicUrl }: OwnAccount) {
  const isOwn = (key: Key) => key.id === own?.id;
  const rotate = keyAction("Rotate", rotateOwnKey, (key) =>
    rotatedKeyParts(
      rotateOwnKey,
      publicUrl,
      isOwn(key) ? "You stay signed in here. Other sessions of this key end." : "",
    ),
  );
  if (rights.keys === "own") return [rotate];
  const edit = keyAction("Edit", changeOwnKey, (key) => changedParts(key, own));
  const revoke = keyAction("Revoke", revokeOwnKey, (key) => ({
    intro: <p>This cannot be undone. The preview shows what ends.</p>,
    preview: () => endOf(key, isOwn(key)),
  }));
  return [edit, rotate, revoke];
}

/** `own` is the key of the session. If it has a cap, only names can be changed. */
function changedParts(key: Key, own: Key | null): Parts {
  if (own !== null && own.spending_caps.length > 0) {
    const intro = <p>Your key has a spending cap, so it can change the names of keys only.</p>;
    return { ...changedKeyParts(key, own, ["name"]), intro };
  }
  const intro = key.id === own?.id && (
    <>
      <p>{changeOwnKey.form?.intro}</p>
      <p>
        <strong>You are signed in with this key.</strong> It can give itself less, and only the operator can
        give it more again. With a spending cap it can no longer create keys or change their settings.
      </p>
    </>
  );
  return { ...changedKeyParts(key, own), ...(intro && { intro }) };
}

/** Shows whether somebody uses the key. */
async function endOf(key: Key, isOwn: boolean) {
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
        Requests with the secret …{key.last_four} are refused from now on; running ones may finish. In the
        last 24 hours it made {count}. It was last used <Time at={key.last_used_at} />.
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
}
