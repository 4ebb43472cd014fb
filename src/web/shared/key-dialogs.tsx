/** Dialogs for keys that both apps have. A new secret is shown once. */
import type { ComponentChildren } from "preact";
import { planLimitNames } from "../../accounts/plan-limits.ts";
import type { ActionTexts } from "../../actions/action.ts";
import { ActionDialog } from "./action-dialog.tsx";
import { apiPath, get } from "./api.ts";
import type { FieldOf } from "./field.tsx";
import { wholeNumber } from "./numbers.ts";
import { Secret } from "./secret.tsx";
import { Snippets } from "./snippets.tsx";
import { exactTime } from "./times.ts";
import type { Key, NewKey } from "./types.ts";
import { useLoaded } from "./use-loaded.ts";

interface KeyDialogProps<Result> {
  action: ActionTexts & { done?(result: Result): string };
  intro?: ComponentChildren;
  close(isDone: boolean): void;
}

interface NewSecretProps {
  secret: string | null;
  lost: string;
  /** Ids of models, or `*`. */
  models: readonly string[];
  /** Of the API. Null: the page does not know it. */
  publicUrl: string | null;
}

interface NewKeyProps extends KeyDialogProps<NewKey>, Pick<NewSecretProps, "publicUrl"> {
  /** Absent: the account of the session. */
  account?: string;
  /** The key of the session. No key may exceed its settings. */
  creator?: Key;
  /** The latest expiry of the key, which then has one. */
  latestExpiry?: string;
}

/** Its name is enough for a new key, so the other settings stand apart. */
export function NewKeyDialog({ account, creator, latestExpiry, publicUrl, ...rest }: NewKeyProps) {
  return (
    <ActionDialog
      {...rest}
      target={account === undefined ? {} : { account }}
      subject={account ?? ""}
      {...(latestExpiry === undefined ? {} : { initial: { expires_at: latestExpiry.slice(0, 16) } })}
      inputs={(inputs) =>
        withLimitsOf(creator, inputs, true).map((input) => ({
          ...input,
          isMore: input.name !== "name",
          isRequired: input.isRequired || (input.name === "name" && creator !== undefined),
        }))
      }
      result={({ key, models }) => (
        <NewSecret
          secret={key}
          lost="Revoke this key in the list, and create another one."
          models={models}
          publicUrl={publicUrl}
        />
      )}
    />
  );
}

/** A new key, and how to use it. */
function NewSecret({ secret, lost, models, publicUrl }: NewSecretProps) {
  const all = useLoaded("models", (signal) => get<{ data: { id: string }[] }>(apiPath("models"), {}, signal));
  const model = models.find((id) => id !== "*") ?? all.value?.data[0]?.id;
  return (
    <>
      <Secret secret={secret} lost={lost} />
      {secret !== null && model !== undefined && (
        <Snippets publicUrl={publicUrl} model={model} secret={secret} />
      )}
    </>
  );
}

interface ChangeKeyProps extends KeyDialogProps<Key> {
  of: Key;
  name: string;
  creator?: Key;
  /** Names of the inputs. Default: all. */
  only?: readonly string[];
}

export function ChangeKeyDialog({ of: key, name, creator, only, ...rest }: ChangeKeyProps) {
  return (
    <ActionDialog
      {...rest}
      target={{ key: key.id }}
      subject={name}
      before={{ ...key, ...key.limits }}
      inputs={(inputs) =>
        withLimitsOf(creator, inputs, false).filter((input) => only?.includes(input.name) ?? true)
      }
    />
  );
}

/** Names the limits of the session's key at the inputs. */
function withLimitsOf(creator: Key | undefined, inputs: FieldOf[], isNew: boolean): FieldOf[] {
  if (creator === undefined) return inputs;
  // A new key has what its creator has, unless it is given less.
  const orDefault = isNew ? ", which is also the default" : "";
  const { models, limits, expires_at: expiry } = creator;
  const hints = new Map<string, string>();
  if (!models.includes("*"))
    hints.set("models", `Ids with commas between them. Your key allows: ${models.join(", ")}.`);
  if (expiry !== null) {
    const at = exactTime(Date.parse(expiry));
    hints.set("expires_at", `At the latest when your key expires${orDefault}: ${at}.`);
  }
  for (const name of planLimitNames) {
    const max = limits[name];
    if (max !== null) hints.set(name, `At most ${wholeNumber(max)}, as your key allows${orDefault}.`);
  }
  return inputs.map((input) => {
    const hint = hints.get(input.name);
    const isListed = input.name === "models" && !models.includes("*");
    const initial = isListed ? { isRequired: true, ...(isNew && { initial: models.join(", ") }) } : {};
    return { ...input, ...initial, ...(hint === undefined ? {} : { hint }) };
  });
}

interface RotateProps extends KeyDialogProps<NewKey>, Pick<NewSecretProps, "publicUrl"> {
  of: Key;
  name: string;
  /** Said before the change. */
  note?: string;
}

export function RotateKeyDialog({ of: key, name, note = "", publicUrl, action, close }: RotateProps) {
  return (
    <ActionDialog
      action={action}
      close={close}
      target={{ key: key.id }}
      subject={name}
      intro={
        <p>
          {action.form?.intro} {note}
        </p>
      }
      result={(rotated) => (
        <NewSecret
          secret={rotated.key}
          models={rotated.models}
          publicUrl={publicUrl}
          lost={
            rotated.old_secret_until === null
              ? "The old secret has ended. Rotate the key again."
              : "The old secret is valid for a time. Create another key, and then revoke this one."
          }
        />
      )}
    />
  );
}
