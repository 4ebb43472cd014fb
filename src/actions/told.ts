/** Changes as the API shows them: with the names of those in them, and as a sentence. */
import Type, { type Static } from "typebox";
import { component, orNull, text } from "../accounts/json-objects.ts";
import { changeObject } from "../accounts/log-objects.ts";
import { journalObject } from "../accounts/operator-objects.ts";
import { personObject } from "../accounts/person-objects.ts";
import type { LoggedChange } from "../store/change-log.ts";
import type { ListedEntry, Store } from "../store/store.ts";
import { personName } from "./columns.ts";
import { sentenceOf, type ToldChange, textOf } from "./sentences.ts";

const name = (of: string) =>
  orNull(Type.String({ description: `the present name of ${of}, if it is a key, a person or a link` }));

const toldFields = {
  by_name: name("the actor"),
  subject_name: name("the subject"),
  sentence: Type.String({ description: "what happened, for people to read: the wording may change" }),
};

export const toldChange = component("ToldChange", { ...changeObject.schema.properties, ...toldFields });
export type ToldChangeJson = Static<typeof toldChange>;
export const toldEntry = component("ToldEntry", {
  account: text,
  ...journalObject.schema.properties,
  ...toldFields,
});
export type ToldEntryJson = Static<typeof toldEntry>;

type Named<Row> = Row & { byName: string | null; subjectName: string | null };

export function toldChangeOf(row: Named<LoggedChange>): ToldChangeJson {
  return told(row, changeObject.of(row));
}

export function toldEntryOf(row: Named<ListedEntry>): ToldEntryJson {
  return told(row, { account: row.account, ...journalObject.of(row) });
}

function told<Json extends Omit<ToldChange, "by_name" | "subject_name">>(
  { byName, subjectName }: Named<object>,
  json: Json,
) {
  const named = { ...json, by_name: byName, subject_name: subjectName };
  return { ...named, sentence: textOf(sentenceOf(named)) };
}

/** Adds the names, in two reads at once for all rows. */
export async function withNames<Row extends LoggedChange | ListedEntry>(
  store: Pick<Store, "names" | "people">,
  rows: readonly Row[],
): Promise<Named<Row>[]> {
  const ids = [...new Set(rows.flatMap(({ by, subject }) => [idIn(by), subject]))].filter(isNamed);
  const [people, names] = await Promise.all([
    store.people(ids.filter((id) => id.startsWith("person_"))),
    store.names(ids.filter((id) => !id.startsWith("person_"))),
  ]);
  for (const person of people) {
    if (person.erasedMs === null)
      names.set(person.id, personName(personObject.of({ ...person, role: null })));
  }
  const nameOf = (id: string | null) => (id === null ? null : (names.get(id) ?? null));
  return rows.map((row) => ({ ...row, byName: nameOf(idIn(row.by)), subjectName: nameOf(row.subject) }));
}

function idIn(by: string): string {
  return by.slice(by.indexOf(":") + 1);
}

/** The ids of payments and requests have other forms, and no names. */
function isNamed(id: string | null): id is string {
  return id !== null && /^(?:key|opkey|link|person)_[0-9a-f]{16}$/.test(id);
}
