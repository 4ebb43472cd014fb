/**
 * `inkwell key`: issues, lists, changes, rotates and revokes API keys. A secret is shown once;
 * only its hash is stored.
 */
import { Command } from "commander";
import { keyObject, keyOfSecretObject } from "../accounts/operator-objects.ts";
import { keyState } from "../actions/columns.ts";
import { keyActions } from "../actions/key-runs.ts";
import { inkwell } from "../invocation.ts";
import { addAction } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";
import { firstLine } from "./input.ts";
import { keyDetails, keyTable } from "./key-text.ts";

export function keyCommand(cli: Cli): Command {
  const key = new Command("key").description("issue, list, change, rotate and revoke API keys");

  addAction(cli, key, keyActions.makeKey, {
    about: "issue a key; prints it once, alone on stdout",
    text: (made) => made.key ?? "",
    remark: ({ id, account }) =>
      `The key of ${account} is shown only now. Keep it safe. To revoke it: ${inkwell(`key revoke ${id}`)}`,
  });

  key
    .command("list")
    .description("list the keys of one account, or of all, without their secrets")
    .argument("[account]", "as account list shows it")
    .option("--all", "include revoked and expired keys")
    .action((account: string | undefined, { all = false }: { all?: boolean }) => list(cli, account, all));

  addAction(cli, key, keyActions.showKey, {
    about: "show one key: its settings, budget and old secret",
    text: keyDetails,
  });

  key
    .command("lookup")
    .description("show which key and account a secret belongs to; reads the secret from stdin")
    .addHelpText("after", examples(inkwell("key lookup < secret.txt")))
    .action(() => lookUp(cli));

  addAction(cli, key, keyActions.changeKey, {
    about: "change settings of a key, from its next request on; other settings stay",
    text: keyDetails,
  });
  addAction(cli, key, keyActions.rotateKey, {
    about: "give a key a new secret; prints it once, alone on stdout",
    text: (rotated) => rotated.key ?? "",
  });
  addAction(cli, key, keyActions.revokeKey, {
    about: "revoke a key with both of its secrets, at once and for good",
  });
  return key;
}

async function list(cli: Cli, account: string | undefined, all: boolean): Promise<void> {
  await cli.withActions(cli.config(), async (actions) => {
    const nowMs = actions.ledgerMs();
    const keys = (await actions.keys.list(account)).map(keyObject.of);
    const shown = all ? keys : keys.filter((each) => keyState(each, nowMs) === "active");
    cli.print(shown, keyTable(shown, nowMs));
    const hidden = keys.length - shown.length;
    const command = [inkwell("key list"), ...(account === undefined ? [] : [account]), "--all"].join(" ");
    if (hidden > 0) cli.remark(`${hidden} more, revoked or expired: ${command}`);
    if (keys.length === 0)
      cli.remark(`There are no keys yet. To issue one: ${inkwell(`key create ${account ?? "ACCOUNT"}`)}`);
  });
}

async function lookUp(cli: Cli): Promise<void> {
  if (cli.host.stdin.isTTY === true) cli.remark("Enter the key, and press Enter:");
  const secret = await firstLine(cli.host.stdin);
  await cli.withActions(cli.config(), async (actions) => {
    const nowMs = actions.ledgerMs();
    const found = keyOfSecretObject.of(await actions.keys.lookUp(secret));
    cli.print(found, keyDetails(found.key, nowMs));
    const old = found.secret === "old" ? "It is the secret before the last rotation. " : "";
    cli.remark(`${old}Requests with this secret are ${found.usable ? "authenticated" : "refused"}.`);
  });
}
