/** Actions of the holder of a key in the portal. Pages bundle this file. */
import { accountKeysMax } from "../accounts/value-rules.ts";
import { mailChoices } from "./accounts.ts";
import { action, variantOf } from "./action.ts";
import { changedKeySettings, keyId, newKeySettings, operationId } from "./fields.ts";
import * as keys from "./keys.ts";
import { stopRequest } from "./service.ts";

const role = "holder";

export const makeOwnKey = variantOf(keys.makeKey, {
  title: "Create a key of the account",
  help: `For keys with the right \`account\` and without a spending cap. The new key has the right \`own\`. Settings that are missing are those of the session's key, and none may exceed them. An account has at most ${accountKeysMax} keys. Only the response that creates the key (201) contains it. A repetition with the same operation id returns 200 with \`key: null\`.`,
  http: "POST /api/keys",
  role,
  input: { operation_id: operationId(), ...newKeySettings },
  refuses: ["not_permitted", "operation_differs", "key_changed", "too_many_keys", "too_many_changes"],
  form: {
    title: "Create a key",
    intro: "The key uses the credits of your account. In these pages it sees and rotates only itself.",
    submit: "Create the key",
  },
});

export const changeOwnKey = variantOf(keys.changeKey, {
  help: "For keys with the right `account`. No setting may exceed those of the session's key. A change that gives the key more must leave a key that may do no more than the session's key. A session whose key has a spending cap changes names only. Of a cap that an operator has set, only the credits can change here, and only fall. A person only narrows limits and models. Absent fields stay, and null removes a setting. Each operation id takes effect once.",
  http: "PATCH /api/keys/{key}",
  role,
  input: { key: keyId, operation_id: operationId(), ...changedKeySettings },
  refuses: [
    "not_permitted",
    "key_revoked",
    "operation_differs",
    "key_changed",
    "too_many_keys",
    "too_many_changes",
  ],
});

export const rotateOwnKey = variantOf(keys.rotateKey, {
  input: keys.rotateKey.input,
  help: "The key of the session, or with the right `account` a key that may do no more. The present secret stays valid for requests for the period `overlap`, and never beyond the expiry of the key. If the session rotates its own key, the response has a cookie for a new session, and all other sessions of the key end. Each operation id takes effect once: a repetition returns the key with `key` null.",
  http: "POST /api/keys/{key}/rotate",
  role,
  refuses: [
    "not_permitted",
    "key_revoked",
    "key_expired",
    "operation_differs",
    "key_changed",
    "too_many_changes",
  ],
});

export const mailSaved = "The choice is saved.";

export const changeOwnMail = action({
  id: "changeMail",
  title: "Choose the mail about the account",
  help: "For persons, and keys with the right `account`. Mail goes to the address that the operator has for the account, at most one of a kind a day. Fields that are missing stay.",
  http: "PATCH /api/account/mail",
  role,
  input: mailChoices,
  refuses: ["not_permitted", "too_many_changes"],
  done: () => mailSaved,
});

export const stopOwnRequest = action({
  id: "stopRequest",
  input: stopRequest.input,
  title: "Stop a running request of the key or the account",
  help: "A key with the right `own` stops its own requests, a person or a key with the right `account` those of the account. Waits until the request has ended. Its client gets `request_stopped`, and pays for the tokens so far. `outcome` is `ended` if the request ended by itself meanwhile.",
  http: "POST /api/requests/{request}/stop",
  role,
  refuses: ["request_not_found", "too_many_changes"],
  form: { title: "Stop a running request", submit: "Stop the request", isDangerous: true },
  done: ({ outcome }: { outcome: "stopped" | "ended" }) =>
    outcome === "stopped" ? "The request is stopped." : "The request has ended by itself.",
});

export const revokeOwnKey = variantOf(keys.revokeKey, {
  input: keys.revokeKey.input,
  title: "Revoke a key of the account, at once and for good",
  help: "For keys with the right `account`. Running requests of the key may finish.",
  http: "DELETE /api/keys/{key}",
  role,
  refuses: ["not_permitted", "too_many_changes"],
});
