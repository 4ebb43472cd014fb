/**
 * `inkwell console`: prints a link that signs a browser in to the console of the running service.
 *
 * The link is as good as the operator token for five minutes, so only terminals show it. With
 * `--json` or into a pipe, the command prints the URL of the console, and makes no link.
 */
import type { Command } from "commander";
import { consoleUrl, signInLink } from "../app/startup-banner.ts";
import { commandWith } from "./action-command.ts";
import type { Cli } from "./cli.ts";

const makeSignInCode = { id: "makeSignInCode", http: "POST /admin/session/codes", input: {} } as const;

interface SignInCodeJson {
  code: string;
  operator_url: string | null;
}

export function consoleCommand(cli: Cli): Command {
  const about = "print a link that signs a browser in to the console; it works once, for five minutes";
  return commandWith({ words: "console", about, fields: {}, examples: ["console"] }, async () => {
    const url = await cli.api.requireService();
    if (cli.json || cli.host.stdout.isTTY !== true) {
      const shown = consoleUrl(cli.server ?? (await cli.config()).operator.url ?? url);
      cli.print({ url: shown }, shown);
      cli.remark("A sign-in link is printed to terminals only. Or sign in with the operator token.");
      return;
    }
    const { code, operator_url } = await cli.api.get<SignInCodeJson>(makeSignInCode);
    cli.print(null, signInLink(consoleUrl(operator_url ?? url), code));
    cli.remark(
      "Open this link in a browser. It works once, for five minutes, and is as good as the operator token.",
    );
  });
}
