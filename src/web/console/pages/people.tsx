/** People who sign in: who they are, their accounts, and what operators do with them. */
import { personEmail, personName, personState } from "../../../actions/columns.ts";
import { addPerson, changePersonState, erasePerson, linkPerson } from "../../../actions/people.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { apiPath, readBlob } from "../../shared/api.ts";
import { Card, PageHead } from "../../shared/layout.tsx";
import { type ListAction, ResourceList, type RowAction } from "../../shared/resource-page.tsx";
import type { Place } from "../../shared/router.tsx";
import { SaveButton } from "../../shared/save-button.tsx";
import { columnsOf } from "../../shared/table.tsx";
import { Badge } from "../../shared/values.tsx";
import { AccountLink } from "../account-link.tsx";
import type { Person } from "../types.ts";

export const personCells = {
  name: (person: Person) => <span title={`id ${person.id}`}>{personName(person)}</span>,
  email: personEmail,
  account: ({ account }: Person) => account !== null && <AccountLink id={account} />,
  suspended_at: (person: Person) => <Badge text={personState(person)} />,
};

const add: ListAction = {
  title: "Add a person behind a front end",
  dialog: (close) => <ActionDialog action={addPerson} close={close} />,
};

const stateChange = (to: {
  title: string;
  state: "active" | "suspended";
  submit: string;
  intro: string;
}): RowAction<Person> => ({
  title: to.title,
  label: (person) => `${to.title} ${personName(person)}`,
  isFor: ({ erased_at: erasedAt, suspended_at: suspendedAt }) =>
    erasedAt === null && (suspendedAt === null) === (to.state === "suspended"),
  dialog: (person, close) => (
    <ActionDialog
      action={changePersonState}
      target={{ person: person.id, state: to.state }}
      title={`${to.title} ${personName(person)}`}
      submit={to.submit}
      isDangerous={to.state === "suspended"}
      intro={<p>{to.intro}</p>}
      close={close}
    />
  ),
});

const link: RowAction<Person> = {
  title: "Link",
  label: (person) => `Link an account to ${personName(person)}`,
  isFor: ({ erased_at: erasedAt, account }) => erasedAt === null && account === null,
  dialog: (person, close) => (
    <ActionDialog
      action={linkPerson}
      target={{ person: person.id }}
      subject={personName(person)}
      close={close}
    />
  ),
};

const suspend = stateChange({
  title: "Suspend",
  state: "suspended",
  submit: "Suspend the person",
  intro:
    "The sessions of the person end, and further sign-ins are refused. Account and keys stay as they are.",
});

const resume = stateChange({
  title: "Resume",
  state: "active",
  submit: "Resume the person",
  intro: "The person may sign in again.",
});

const exportData = (person: Person) => (
  <SaveButton
    text="Export"
    label={`Export the data of ${personName(person)}`}
    file={`${person.id}.json`}
    load={() => readBlob(apiPath("people", person.id, "data"), {})}
  />
);

const erase: RowAction<Person> = {
  title: "Erase",
  label: (person) => `Erase the data of ${personName(person)}`,
  isFor: ({ erased_at: erasedAt }) => erasedAt === null,
  dialog: (person, close) => (
    <ActionDialog
      action={erasePerson}
      target={{ person: person.id }}
      subject={personName(person)}
      close={close}
    />
  ),
};

export function PeoplePage({ place }: { place: Place }) {
  return (
    <ResourceList<Person>
      place={place}
      path={apiPath("people")}
      limit={100}
      filters={[{ name: "account", label: "Account" }]}
      caption="People"
      columns={columnsOf("person", "name email role account seen_at suspended_at", personCells)}
      rowActions={{ title: "Change", actions: [link, suspend, resume, exportData, erase] }}
      actions={[add]}
      empty={place.query.get("account") ? "No person has this account." : "There is no person."}
      frame={(buttons, list) => (
        <>
          <PageHead title="People">{buttons}</PageHead>
          <Card title="People who sign in, or are behind a front end">{list}</Card>
        </>
      )}
    />
  );
}
