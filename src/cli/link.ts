/** `inkwell link`: makes, lists, changes and ends links by which many people join. */
import type { Command } from "commander";
import type { LinkAccountJson, LinkJson } from "../accounts/link-objects.ts";
import type { LinkPageJson } from "../actions/link-runs.ts";
import { closeLinkAccounts, createLink, endLink, rotateLink, setLink } from "../actions/links.ts";
import { listLinks, showLink } from "../actions/views.ts";
import { inkwell } from "../invocation.ts";
import { shortTime } from "../units.ts";
import { actionCommand, commandGroup, type Given, listCommand } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, count, table } from "./format.ts";

const columns = columnsOf("link", "id name plan state taken seats ends_at domain? accounts_end_at?");
const accountColumns = columnsOf("linkAccount", "account name joined_at state used", {
  name: ({ name }: LinkAccountJson) => (name === null ? "-" : `${name} (unconfirmed)`),
  used: ({ used }: LinkAccountJson) => (used ? "yes" : "no"),
});

export function linkCommand(cli: Cli): Command {
  const confirmation = (effect: (page: LinkPageJson) => string, question: string) => async (given: Given) => {
    const page = await cli.api.get<LinkPageJson>(showLink, { link: given.link });
    return { effect: effect(page), question };
  };
  return commandGroup("link", "make, list, change and end links by which many people join", [
    actionCommand(cli, createLink, {
      about: "make a link by which many people join; prints it once, alone on stdout",
      text: ({ link }) => link ?? "",
      remark: ({ id, link }, done) =>
        link === null
          ? `Link ${id} was made before. It was shown then. For a new one: ${inkwell(`link rotate ${id}`)}`
          : `${done} Anyone who has it can take seats. To end it: ${inkwell(`link end ${id}`)}`,
    }),
    listCommand<LinkJson>(cli, listLinks, {
      about: "list links, the newest first",
      columns,
      none: () => "There is no link.",
    }),
    actionCommand<typeof showLink.input, LinkPageJson>(cli, showLink, {
      about: "show a link with its seats and its accounts",
      text: (page) => pageText(page, cli),
      remark: ({ next }) => (next === null ? "" : `There are more accounts: --after "${next}"`),
    }),
    actionCommand(cli, setLink),
    actionCommand(cli, rotateLink, {
      about: "replace a link by a new one; prints it once, alone on stdout",
      text: ({ link }) => link ?? "",
    }),
    actionCommand(cli, endLink, {
      confirm: confirmation(
        ({ link: { name } }) => `Ending the link of ${name} is final. Its accounts stay as they are.`,
        "End it?",
      ),
    }),
    actionCommand(cli, closeLinkAccounts, {
      confirm: confirmation(
        ({ link: { name, taken } }) =>
          `Closing the ${count(taken, "account")} of ${name} is final. Base and overage credits lapse.`,
        "Close them?",
      ),
    }),
  ]);
}

function pageText({ link, seats, data }: LinkPageJson, cli: Cli): string {
  const { joined, used, waiting } = seats;
  const counts = `${joined} of ${link.seats} seats taken, ${used} with a finished request, ${waiting} waiting for their mail to be used`;
  const end = `made by ${link.made_by} on ${shortTime(link.created_at)}`;
  const accounts = data.length === 0 ? "" : `\n\n${table(data, accountColumns, cli)}`;
  return `${table([link], columns, cli)}\n\n${counts}\n${end}${accounts}`;
}
