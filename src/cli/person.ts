/** `inkwell person`: lists people, links and suspends them, exports and erases their data. */
import { Command } from "commander";
import { type PersonJson, shownPerson } from "../accounts/person-objects.ts";
import { personName, personState } from "../actions/columns.ts";
import { exportPerson } from "../actions/people.ts";
import { peopleActions } from "../actions/people-runs.ts";
import { listPeople } from "../actions/views.ts";
import { inkwell } from "../invocation.ts";
import type { PersonRow } from "../store/people.ts";
import { pageRowsMax } from "../store/store.ts";
import { visibleText } from "../visible-text.ts";
import { addAction, withFields } from "./action-command.ts";
import type { Cli } from "./cli.ts";
import { columnsOf, table } from "./format.ts";
import { examples } from "./help.ts";

const columns = columnsOf("person", "id name email role account seen_at suspended_at", {
  name: (person: PersonJson) => personName(person),
  suspended_at: (person: PersonJson) => personState(person),
});

export function personCommand(cli: Cli): Command {
  const group = new Command("person").description(
    "list people, add, link and suspend them, export and erase their data",
  );

  const list = new Command("list").description("list people in the order of their ids");
  const read = withFields(list, { account: listPeople.input.account });
  list
    .addHelpText("after", examples(inkwell("person list"), inkwell("person list --account ada")))
    .action(async () => {
      const { account } = read();
      const people = await listed(cli, account === undefined ? undefined : String(account));
      cli.print(people, people.length === 0 ? "" : table(people, columns));
      if (people.length === 0)
        cli.remark(account === undefined ? "There is no person." : "No person matches.");
    });
  group.addCommand(list);

  addAction(cli, group, peopleActions.addPerson);
  addAction(cli, group, peopleActions.linkPerson);
  addAction(cli, group, peopleActions.changePersonState, {
    words: "person suspend <person>",
    about: "end the sessions of a person and refuse further sign-ins; account and keys stay as they are",
    preset: { state: "suspended" },
    remark: ({ id }, done) => `${done} To end that: ${inkwell(`person resume ${id}`)}`,
  });
  addAction(cli, group, peopleActions.changePersonState, {
    words: "person resume <person>",
    about: "end a suspension of a person",
    preset: { state: "active" },
  });
  group.addCommand(exportCommand(cli));
  addAction(cli, group, peopleActions.erasePerson, {
    confirm: {
      effect: "Erasing the data of a person is final. Account, keys, credits and receipts stay.",
      question: "Erase it?",
    },
  });
  return group;
}

/** Reads all pages. */
async function listed(cli: Cli, account: string | undefined): Promise<PersonJson[]> {
  return await cli.withActions(cli.config(), async (actions) => {
    const rows: PersonRow[] = [];
    for (let page: PersonRow[] | null = null; page === null || page.length === pageRowsMax; ) {
      page = await actions.store.listPeople({ account, after: rows.at(-1)?.id, limit: pageRowsMax });
      rows.push(...page);
    }
    return rows.map((row) => shownPerson(actions, row));
  });
}

/** Writes the document while it is read. */
function exportCommand(cli: Cli): Command {
  const command = new Command("export").description(
    "export everything that the database has about a person, as JSON",
  );
  const read = withFields(command, exportPerson.input, { args: ["<person>"] });
  const [example = ""] = exportPerson.examples ?? [];
  return command.addHelpText("after", examples(inkwell(example))).action(async () => {
    const json = read();
    await cli.withActions(cli.config(), async (actions) => {
      const { result } = await peopleActions.exportPerson.run(actions, json);
      for await (const part of result) await cli.write(visibleText(String(part)));
    });
  });
}
