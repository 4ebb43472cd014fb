/** People who sign in: who they are, their accounts, and what operators do with them. */
import { personName, personState } from "../../../actions/columns.ts";
import { addPerson, changePersonState, erasePerson, linkPerson } from "../../../actions/people.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { apiPath, download, get } from "../../shared/api.ts";
import { useAction } from "../../shared/form-dialog.tsx";
import { Card, PageHead } from "../../shared/layout.tsx";
import type { Place } from "../../shared/router.tsx";
import { SaveButton } from "../../shared/save-button.tsx";
import { SearchFilter } from "../../shared/search-filter.tsx";
import { Empty, ShownList } from "../../shared/states.tsx";
import { columnsOf, Pager, Table } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Badge } from "../../shared/values.tsx";
import { AccountLink } from "../account-link.tsx";
import type { Person } from "../types.ts";

export const personCells = {
  name: (person: Person) => <span title={`id ${person.id}`}>{personName(person)}</span>,
  account: ({ account }: Person) => account !== null && <AccountLink id={account} />,
  suspended_at: (person: Person) => <Badge text={personState(person)} />,
};

const stateChanges = {
  suspend: {
    ...{ title: "Suspend", state: "suspended", submit: "Suspend the person" },
    intro:
      "The sessions of the person end, and further sign-ins are refused. Account and keys stay as they are.",
  },
  resume: {
    ...{ title: "Resume", state: "active", submit: "Resume the person" },
    intro: "The person may sign in again.",
  },
} as const;

export function PeoplePage({ place }: { place: Place }) {
  const [account = null, after = null] = ["account", "after"].map((name) => place.query.get(name));
  const people = useLoaded(`people ${account} ${after}`, (signal) =>
    get<Page<Person>>(apiPath("people"), { account: account || undefined, after, limit: 100 }, signal),
  );
  const { open, show, close } = useAction<string>(people.reload);
  const [action, id] = (open ?? "").split(" ");
  const person = people.value?.data.find((each) => each.id === id);
  return (
    <>
      <PageHead title="People">
        <button type="button" onClick={() => show("add")}>
          Add a person behind a front end
        </button>
      </PageHead>
      {action === "add" && <ActionDialog action={addPerson} close={close} />}
      <Card title="People who sign in, or are behind a front end">
        <div class="filters">
          <SearchFilter name="account" label="Account" value={account} />
        </div>
        <ShownList
          of={people}
          empty={<Empty>{account ? "No person has this account." : "There is no person."}</Empty>}
        >
          {({ data, next }) => (
            <>
              <Table
                caption="People"
                rows={data}
                columns={[
                  ...columnsOf("person", "name email role account seen_at suspended_at", personCells),
                  { title: "Change", cell: (row: Person) => <Changes of={row} show={show} /> },
                ]}
              />
              <Pager next={next} isFirst={after === null} />
            </>
          )}
        </ShownList>
      </Card>
      {person && action === "link" && (
        <ActionDialog
          action={linkPerson}
          target={{ person: person.id }}
          subject={personName(person)}
          close={close}
        />
      )}
      {person && (action === "suspend" || action === "resume") && (
        <ChangeState of={person} change={action} close={close} />
      )}
      {person && action === "erase" && (
        <ActionDialog
          action={erasePerson}
          target={{ person: person.id }}
          subject={personName(person)}
          close={close}
        />
      )}
    </>
  );
}

function Changes({ of: person, show }: { of: Person; show(action: string): void }) {
  const { id, account, suspended_at: suspendedAt, erased_at: erasedAt } = person;
  const name = personName(person);
  const button = (title: string, label: string) => (
    <>
      <button type="button" aria-label={label} onClick={() => show(`${title.toLowerCase()} ${id}`)}>
        {title}
      </button>{" "}
    </>
  );
  return (
    <>
      {erasedAt === null && account === null && button("Link", `Link an account to ${name}`)}
      {erasedAt === null && suspendedAt === null && button("Suspend", `Suspend ${name}`)}
      {erasedAt === null && suspendedAt !== null && button("Resume", `Resume ${name}`)}
      <SaveButton
        text="Export"
        label={`Export the data of ${name}`}
        file={`${id}.json`}
        load={() => download(apiPath("people", id, "data"), {})}
      />{" "}
      {erasedAt === null && button("Erase", `Erase the data of ${name}`)}
    </>
  );
}

function ChangeState(props: { of: Person; change: keyof typeof stateChanges; close(isDone: boolean): void }) {
  const { of: person, change, close } = props;
  const { title, state, submit, intro } = stateChanges[change];
  return (
    <ActionDialog
      action={changePersonState}
      target={{ person: person.id, state }}
      title={`${title} ${personName(person)}`}
      submit={submit}
      isDangerous={change === "suspend"}
      intro={<p>{intro}</p>}
      close={close}
    />
  );
}
