/** People who sign in: who they are, their accounts, and what operators do with them. */
import type { ActionTexts } from "../../../actions/action.ts";
import { personEmail, personName, personState } from "../../../actions/columns.ts";
import {
  addPerson,
  changePersonState,
  erasePerson,
  exportPerson,
  linkPerson,
} from "../../../actions/people.ts";
import { apiPath, readBlob } from "../../shared/api.ts";
import { ResourceList, type RowAction } from "../../shared/resource-page.tsx";
import type { Place } from "../../shared/router.tsx";
import { SaveButton } from "../../shared/save-button.tsx";
import { columnsOf } from "../../shared/table.tsx";
import { Badge } from "../../shared/values.tsx";
import { accountCell } from "../account-link.tsx";
import type { Person } from "../types.ts";

export const personCells = {
  name: (person: Person) => <span title={`id ${person.id}`}>{personName(person)}</span>,
  email: personEmail,
  suspended_at: (person: Person) => <Badge text={personState(person)} />,
};

const changeOf = (
  action: ActionTexts,
  title: string,
  label: string,
  isFor: (person: Person) => boolean,
  target: { state?: string } = {},
): RowAction<Person> => ({
  title,
  action,
  label: (person) => `${label} ${personName(person)}`,
  isFor: (person) => person.erased_at === null && isFor(person),
  parts: (person) => ({ target: { person: person.id, ...target }, subject: personName(person) }),
});

const exportData = (person: Person) => (
  <SaveButton
    text="Export"
    action={exportPerson}
    label={`Export the data of ${personName(person)}`}
    file={`${person.id}.json`}
    load={() => readBlob(apiPath("people", person.id, "data"), {})}
  />
);

const isActive = ({ suspended_at: suspendedAt }: Person) => suspendedAt === null;
const changes = [
  changeOf(linkPerson, "Link", "Link an account to", ({ account }) => account === null),
  changeOf(changePersonState, "Suspend", "Suspend", isActive, { state: "suspended" }),
  changeOf(changePersonState, "Resume", "Resume", (person) => !isActive(person), { state: "active" }),
  exportData,
  changeOf(erasePerson, "Erase", "Erase the data of", () => true),
];

export function PeoplePage({ place }: { place: Place }) {
  return (
    <ResourceList<Person>
      place={place}
      path={apiPath("people")}
      limit={100}
      filters={[
        { name: "search", label: "Search" },
        { name: "account", label: "Account" },
      ]}
      caption="People"
      columns={columnsOf("person", "name email role account seen_at suspended_at", {
        ...personCells,
        account: accountCell,
      })}
      rowActions={{ title: "Change", actions: changes }}
      actions={[{ title: "Add a person behind a front end", action: addPerson }]}
      empty={place.query.size > 0 ? "No person is like this." : "There is no person."}
      heading="People"
      card="People who sign in, or are behind a front end"
    />
  );
}
