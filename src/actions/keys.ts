/** Actions of operators on keys. Pages bundle this file. */
import type { KeyJson, NewKeyJson } from "../accounts/operator-objects.ts";
import { defaultOverlap, noOverlap, overlapRule } from "../accounts/value-rules.ts";
import { shortTime } from "../units.ts";
import { action } from "./action.ts";
import { type Field, optional } from "./field.ts";
import {
  accountId,
  actsFor,
  changedKeySettings,
  keyId,
  newKeySettings,
  operationId,
  portalRights,
} from "./fields.ts";

const overlap: Field<string> = {
  kind: "text",
  check: "overlap",
  rule: overlapRule,
  label: "The present secret",
  presets: [
    ["PT1H", "stays valid for an hour"],
    [defaultOverlap, "stays valid for a day"],
    ["P1W", "stays valid for a week"],
    ["P1M", "stays valid for a month"],
    [noOverlap, "ends now: it leaked"],
  ],
  initial: defaultOverlap,
  option: "--overlap <period>",
  about: `how long the old secret stays valid, at most a year, or "${noOverlap}" (default: ${defaultOverlap})`,
};

/** The key of a front end opens accounts, and spends those of all people. */
function ofFrontEnd({ acts_for: frontEnd }: Readonly<Record<string, unknown>>) {
  return frontEnd ? "operator" : undefined;
}

export const makeKey = action({
  id: "makeKey",
  title: "Issue a key",
  help: "Only the response that creates the key (201) contains it. A repetition with the same operation id returns 200 with `key: null`. If you lost the first response, revoke the key and issue another.",
  http: "POST /admin/accounts/{account}/keys",
  cli: "key create <account>",
  examples: [
    "key create ada --name laptop",
    "key create ada --name trial --expires 2027-01-31 --rpm 20 --models smollm2-135m-instruct",
    "key create ada --name research --budget 500 --every P1M --align calendar",
    "key create webui --acts-for webui --person-header x-openwebui-user-id --new-account-plan student --new-accounts-per-day 100",
    "KEY=$(key create ada)",
  ],
  role: "support",
  once: "operation_id",
  input: {
    account: accountId,
    operation_id: operationId(),
    ...newKeySettings,
    portal: optional(portalRights),
    acts_for: optional(actsFor),
  },
  needs: ofFrontEnd,
  check({ actsFor: frontEnd }) {
    if ((frontEnd?.plan === undefined) === (frontEnd?.newAccountsPerDay === undefined)) return null;
    const message =
      "acts_for needs both plan and new_accounts_per_day, or none of them: then unknown people are refused.";
    return { param: "acts_for", message };
  },
  refuses: ["operation_differs"],
  status: 201,
  form: { title: "Create a key for {name}", submit: "Create the key" },
  done: ({ account, id }: NewKeyJson) =>
    `Key ${id} of ${account} is issued. It is shown only now: keep it safe.`,
});

export const changeKey = action({
  id: "changeKey",
  title: "Change settings of a key",
  help: "Takes effect with the next request of the key. Absent fields stay, and null removes the name, the end or a limit. `spending_caps` replaces all caps, and an empty list removes them. A cap with the same name, period, alignment and time zone keeps its window and what was spent; another one begins with nothing spent. Each operation id takes effect once. The key of a front end needs the role `operator`.",
  http: "PATCH /admin/keys/{key}",
  cli: "key set <key>",
  examples: [
    "key set key_1f2e3d4c5b6a7988 --budget 500 --every P1M",
    'key set key_1f2e3d4c5b6a7988 --caps "300/PT5H, 1000/P1W/calendar"',
    "key set key_1f2e3d4c5b6a7988 --caps none",
    "key set key_1f2e3d4c5b6a7988 --models smollm2-135m-instruct --no-tpm --expires never",
  ],
  role: "support",
  once: "operation_id",
  input: {
    key: keyId,
    operation_id: operationId(),
    ...changedKeySettings,
    portal: optional(portalRights),
  },
  needs: ofFrontEnd,
  refuses: ["key_revoked", "operation_differs"],
  form: {
    title: "Edit the key {name}",
    intro: "The next request of the key uses the new settings. Empty fields remove a setting.",
    submit: "Save the settings",
  },
  done: ({ id, account }: KeyJson) =>
    `Key ${id} of ${account} is changed. Its next request uses these settings.`,
});

export const rotateKey = action({
  id: "rotateKey",
  title: "Give a key a new secret",
  help: "The present secret stays valid for the period `overlap`, and an older one ends at once. Id, caps, limits and receipts of the key stay. Each operation id takes effect once: a repetition returns the key with `key` null. The key of a front end needs the role `operator`.",
  http: "POST /admin/keys/{key}/rotate",
  cli: "key rotate <key>",
  examples: [
    "KEY=$(key rotate key_1f2e3d4c5b6a7988)",
    "key rotate key_1f2e3d4c5b6a7988 --overlap PT1H",
    `key rotate key_1f2e3d4c5b6a7988 --overlap ${noOverlap}`,
  ],
  role: "support",
  once: "operation_id",
  input: { key: keyId, operation_id: operationId(), overlap: optional(overlap) },
  needs: ofFrontEnd,
  refuses: ["key_revoked", "key_expired", "operation_differs"],
  form: {
    title: "Rotate the key {name}",
    intro:
      "The key gets a new secret. Its name, caps, limits and receipts stay. A secret from an earlier rotation ends at once.",
    submit: "Create a new secret",
    isDangerous: true,
  },
  done: ({ id, old_secret_until: until }: NewKeyJson) =>
    `The new secret of key ${id} is shown only now. Keep it safe. The old secret ${until === null ? "has ended" : `stays valid until ${shortTime(until)}`}.`,
});

export const revokeKey = action({
  id: "revokeKey",
  title: "Revoke a key, at once and for good",
  help: "Ends both secrets of a rotated key. Running requests may finish. A repetition changes nothing: `revoked_at` stays.",
  http: "DELETE /admin/keys/{key}",
  cli: "key revoke <key>",
  role: "support",
  input: { key: keyId },
  refuses: [],
  form: {
    title: "Revoke the key {name}",
    intro:
      "Clients with this key are refused from now on; running requests may finish. This cannot be undone. The receipts of the key stay.",
    submit: "Revoke for good",
    isDangerous: true,
  },
  done: ({ id, account, revoked_at }: KeyJson) =>
    `Key ${id} of ${account} is revoked since ${shortTime(revoked_at)}. Requests with it are refused.`,
});
