/**
 * `inkwell key`: issues, lists, changes, rotates and revokes API keys. A secret is shown once;
 * only its hash is stored.
 */
import type { Command } from "commander";
import type { Static } from "typebox";
import type { KeyJson, keyOfSecretObject, NewKeyJson } from "../accounts/operator-objects.ts";
import { keyState } from "../actions/columns.ts";
import { optional, optionally } from "../actions/field.ts";
import { accountId } from "../actions/fields.ts";
import { changeKey, makeKey, revokeKey, rotateKey } from "../actions/keys.ts";
import { listAllKeys, listKeys, lookUpKey, showKey } from "../actions/views.ts";
import { inkwell } from "../invocation.ts";
import { actionCommand, commandGroup, commandWith } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { firstLine } from "./input.ts";
import { keyDetails, keyTable } from "./key-text.ts";

export function keyCommand(cli: Cli): Command {
  const detailsOf = async (key: KeyJson) => keyDetails(key, (await cli.api.clock()).nowMs);
  const secretOf = ({ key }: NewKeyJson) => key ?? "";
  return commandGroup("key", "issue, list, change, rotate and revoke API keys", [
    actionCommand(cli, makeKey, {
      about: "issue a key; prints it once, alone on stdout",
      text: secretOf,
      remark: ({ id, account }) =>
        `The key of ${account} is shown only now. Keep it safe. To revoke it: ${inkwell(`key revoke ${id}`)}`,
    }),
    listCommand(cli),
    actionCommand<typeof showKey.input, KeyJson>(cli, showKey, {
      about: "show one key: its settings, caps and old secret",
      text: detailsOf,
    }),
    commandWith(
      {
        words: "key lookup",
        about: "show which key and account a secret belongs to; reads the secret from stdin",
        fields: {},
        examples: ["key lookup < secret.txt"],
      },
      () => lookUp(cli),
    ),
    actionCommand(cli, changeKey, {
      about: "change settings of a key, from its next request on; other settings stay",
      text: detailsOf,
    }),
    actionCommand(cli, rotateKey, {
      about: "give a key a new secret; prints it once, alone on stdout",
      text: secretOf,
    }),
    actionCommand(cli, revokeKey, { about: "revoke a key with both of its secrets, at once and for good" }),
  ]);
}

function listCommand(cli: Cli): Command {
  const all = optionally.flag({ about: "include revoked and expired keys" });
  return commandWith(
    {
      words: "key list [account]",
      about: "list the keys of one account, or of all, without their secrets",
      fields: { account: optional(accountId), all },
    },
    async ({ account, all: hasAll = false }) => {
      const keys = await cli.api.all<KeyJson>(account === undefined ? listAllKeys : listKeys, { account });
      const { nowMs } = await cli.api.clock();
      const shown = keys.filter((each) => hasAll === true || keyState(each, nowMs) === "active");
      cli.print(shown, keyTable(shown, nowMs, cli));
      const hidden = keys.length - shown.length;
      const command = ["key list", ...(account === undefined ? [] : [account]), "--all"].join(" ");
      if (hidden > 0) cli.remark(`${hidden} more, revoked or expired: ${inkwell(command)}`);
      if (keys.length === 0)
        cli.remark(`There are no keys yet. To issue one: ${inkwell(`key create ${account ?? "ACCOUNT"}`)}`);
    },
  );
}

async function lookUp(cli: Cli): Promise<void> {
  if (cli.host.stdin.isTTY === true) cli.remark("Enter the key, and press Enter:");
  const secret = await firstLine(cli.host.stdin);
  const found = await cli.api.get<Static<typeof keyOfSecretObject.schema>>(lookUpKey, { key: secret });
  cli.print(found, keyDetails(found.key, (await cli.api.clock()).nowMs));
  const old = found.secret === "old" ? "It is the secret before the last rotation. " : "";
  cli.remark(`${old}Requests with this secret are ${found.usable ? "authenticated" : "refused"}.`);
}
