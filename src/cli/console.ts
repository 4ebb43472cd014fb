/**
 * `inkwell console`: prints a link that signs a browser in to the console of the running service.
 *
 * The link is as good as the operator token for five minutes, so only terminals show it. With
 * `--json` or into a pipe, the command prints the URL of the console, and makes no link.
 */
import { Command } from "commander";
import { consoleUrl, signInLink } from "../app/startup-banner.ts";
import { serviceUrl } from "./arguments.ts";
import type { Cli } from "./cli.ts";
import { examples } from "./help.ts";
import { operatorUrl, post, tokenOf } from "./operator-client.ts";

export function consoleCommand(cli: Cli): Command {
  return new Command("console")
    .description("print a link that signs a browser in to the console; it works once, for five minutes")
    .option("--url <url>", "URL of the operator listener (default: from the configuration)", serviceUrl)
    .addHelpText("after", examples("inkwell console", "inkwell console --url http://127.0.0.1:8081"))
    .action(({ url }: { url?: string }) => printLink(cli, url));
}

async function printLink(cli: Cli, url: string | undefined): Promise<void> {
  const config = cli.config();
  const listener = url ?? operatorUrl(config);
  if (cli.json || cli.host.stdout.isTTY !== true) {
    const shown = consoleUrl(config.operator.url ?? listener);
    cli.print({ url: shown }, shown);
    cli.remark("A sign-in link is printed to terminals only. Or sign in with the operator token.");
    return;
  }
  const { codeObject } = await import("../http/admin/session.ts");
  const answer = await post(`${listener}/admin/session/codes`, tokenOf(config), codeObject.schema);
  cli.print(null, signInLink(consoleUrl(answer.operator_url ?? listener), answer.code));
  cli.remark(
    "Open this link in a browser. It works once, for five minutes, and is as good as the operator token.",
  );
}
