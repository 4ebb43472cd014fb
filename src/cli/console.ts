/**
 * `inkwell console`: prints a link that signs a browser in to the console of the running service.
 *
 * The link is as good as the operator token for five minutes, so only terminals show it. With
 * `--json` or into a pipe, the command prints the URL of the console, and makes no link.
 */
import type { Command } from "commander";
import { consoleUrl, signInLink } from "../app/startup-banner.ts";
import type { Cli } from "./cli.ts";
import { listenerCommand, post } from "./operator-client.ts";

export function consoleCommand(cli: Cli): Command {
  const about = "print a link that signs a browser in to the console; it works once, for five minutes";
  return listenerCommand(cli, "console", about, async ({ config, url, token }) => {
    if (cli.json || cli.host.stdout.isTTY !== true) {
      const shown = consoleUrl(config.operator.url ?? url);
      cli.print({ url: shown }, shown);
      cli.remark("A sign-in link is printed to terminals only. Or sign in with the operator token.");
      return;
    }
    const { codeObject } = await import("../http/admin/session.ts");
    const answer = await post(`${url}/admin/session/codes`, token(), codeObject.schema);
    cli.print(null, signInLink(consoleUrl(answer.operator_url ?? url), answer.code));
    cli.remark(
      "Open this link in a browser. It works once, for five minutes, and is as good as the operator token.",
    );
  });
}
