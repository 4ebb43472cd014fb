/** `inkwell person`: lists people, links and suspends them, exports and erases their data. */
import type { Command } from "commander";
import type { PersonJson } from "../accounts/person-objects.ts";
import { personEmail, personName, personState } from "../actions/columns.ts";
import { addPerson, changePersonState, erasePerson, exportPerson, linkPerson } from "../actions/people.ts";
import { listPeople } from "../actions/views.ts";
import { inkwell } from "../invocation.ts";
import { visibleText } from "../visible-text.ts";
import { actionCommand, commandGroup, commandWith, listCommand } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf } from "./format.ts";

const columns = columnsOf("person", "id name email role account seen_at suspended_at", {
  name: (person: PersonJson) => personName(person),
  email: (person: PersonJson) => personEmail(person) ?? "-",
  suspended_at: (person: PersonJson) => personState(person),
});

export function personCommand(cli: Cli): Command {
  return commandGroup("person", "list people, add, link and suspend them, export and erase their data", [
    listCommand<PersonJson>(cli, listPeople, {
      about: "list people in the order of their ids",
      columns,
      none: (_, isFiltered) => (isFiltered ? "No person matches." : "There is no person."),
    }),
    actionCommand(cli, addPerson),
    actionCommand(cli, linkPerson),
    actionCommand(cli, changePersonState, {
      about: "end the sessions of a person and refuse further sign-ins; account and keys stay as they are",
      preset: { state: "suspended" },
      remark: ({ id }, done) => `${done} To end that: ${inkwell(`person resume ${id}`)}`,
    }),
    actionCommand(cli, changePersonState, {
      about: "end a suspension of a person",
      preset: { state: "active" },
    }),
    exportCommand(cli),
    actionCommand(cli, erasePerson, {
      confirm: {
        effect: "Erasing the data of a person is final. Account, keys, credits and receipts stay.",
        question: "Erase it?",
      },
    }),
  ]);
}

/** Writes the document while it is read. */
function exportCommand(cli: Cli): Command {
  const { cli: words, examples, input: fields } = exportPerson;
  const about = "export everything that the database has about a person, as JSON";
  return commandWith({ words, about, fields, examples }, async (given) => {
    for await (const part of cli.api.text(exportPerson, given)) await cli.write(visibleText(part));
  });
}
