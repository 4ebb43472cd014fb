/** What dialogs for keys differ in from their actions, in both apps. A new secret is shown once. */
import { planLimitNames } from "../../accounts/plan-limits.ts";
import type { ActionTexts } from "../../actions/action.ts";
import { apiPath } from "./api.ts";
import type { FieldOf } from "./form-fields.ts";
import { wholeNumber } from "./numbers.ts";
import type { Parts } from "./resource-page.tsx";
import { Secret } from "./secret.tsx";
import { Snippets } from "./snippets.tsx";
import { exactTime } from "./times.ts";
import type { Key, NewKey } from "./types.ts";
import { useGet } from "./use-loaded.ts";

interface NewSecretProps {
  secret: string | null;
  lost: string;
  /** Ids of models, or `*`. */
  models: readonly string[];
  /** Of the API. Null: the page does not know it. */
  publicUrl: string | null;
}

/**
 * Its name is enough for a new key, so the other settings stand apart. `creator`: the key of the
 * session, whose settings no key may exceed. `latestExpiry`: of the key, which then has one.
 */
export function newKeyParts(
  publicUrl: string | null,
  creator: Key | null = null,
  latestExpiry: string | null = null,
): Parts {
  return {
    ...(latestExpiry !== null && { initial: { expires_at: latestExpiry.slice(0, 16) } }),
    inputs: (inputs) =>
      withLimitsOf(creator, inputs, true).map((input) => ({
        ...input,
        isMore: input.name !== "name",
        isRequired: input.isRequired || (input.name === "name" && creator !== null),
      })),
    result: ({ key, models }: NewKey) => (
      <NewSecret
        secret={key}
        lost="Revoke this key in the list, and create another one."
        models={models}
        publicUrl={publicUrl}
      />
    ),
  };
}

/** A new key, and how to use it. */
export function NewSecret({ secret, lost, models, publicUrl }: NewSecretProps) {
  const all = useGet<{ data: { id: string }[] }>(apiPath("models"));
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

/** `only`: names of the inputs. Default: all. */
export function changedKeyParts(key: Key, creator: Key | null = null, only?: readonly string[]): Parts {
  return {
    before: { ...key, ...key.limits },
    inputs: (inputs) =>
      withLimitsOf(creator, inputs, false).filter((input) => only?.includes(input.name) ?? true),
  };
}

/** Names the limits of the session's key at the inputs. */
function withLimitsOf(creator: Key | null, inputs: FieldOf[], isNew: boolean): FieldOf[] {
  if (creator === null) return inputs;
  // A new key has what its creator has, unless it is given less.
  const orDefault = isNew ? ", which is also the default" : "";
  const { models, limits, expires_at: expiry } = creator;
  const hints = new Map<string, string>();
  if (!models.includes("*")) hints.set("models", "Choose among the models of your key.");
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
    const listed = isListed && { isRequired: true, options: models.map((id) => [id, id] as const) };
    const initial = isListed && isNew && { initial: models.join(", ") };
    return { ...input, ...listed, ...initial, ...(hint === undefined ? {} : { hint }) };
  });
}

/** `note`: said before the change. */
export function rotatedKeyParts({ form }: ActionTexts, publicUrl: string | null, note = ""): Parts {
  return {
    intro: (
      <p>
        {form?.intro} {note}
      </p>
    ),
    result: ({ key, models, old_secret_until: until }: NewKey) => (
      <NewSecret
        secret={key}
        models={models}
        publicUrl={publicUrl}
        lost={
          until === null
            ? "The old secret has ended. Rotate the key again."
            : "The old secret is valid for a time. Create another key, and then revoke this one."
        }
      />
    ),
  };
}
