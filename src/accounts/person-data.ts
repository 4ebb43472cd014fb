/**
 * Everything that the database has about a person, as the text of one JSON document.
 *
 * Lists are read and written a page at a time, so memory use does not depend on their length. If a
 * read fails in between, the document is cut off.
 */
import type { ChangePlace, ChangesQuery } from "../store/change-log.ts";
import { noContact } from "../store/contacts.ts";
import type { PersonRow } from "../store/people.ts";
import type { Store } from "../store/store.ts";
import { usagePages } from "../store/usage-pages.ts";
import { isoTime } from "./json-objects.ts";
import { changeObject, operatorKeyObject } from "./log-objects.ts";
import type { OperatorActions } from "./operator-actions.ts";
import { accountObject, journalObject, keyObject, usageObject } from "./operator-objects.ts";
import { type PersonDataJson, personSeatObject, personSessionObject, shownPerson } from "./person-objects.ts";

/** The rows of a list with their JSON. */
type List<Row> = AsyncIterable<readonly Row[]>;

/** By their names in the document. Lists are read while they are written. */
type Fields = {
  [Name in keyof PersonDataJson]: PersonDataJson[Name] extends readonly (infer Row)[]
    ? List<Row>
    : PersonDataJson[Name];
};

const pageRows = 500;

/** Yields the text of the document. A part has at most one page of a list. */
export async function* personData(
  actions: Pick<OperatorActions, "store" | "account" | "roleNow">,
  person: PersonRow,
): AsyncGenerator<string, void, undefined> {
  const { store } = actions;
  const { id, account } = person;
  const by = `person:${id}`;
  const people = account === null ? [] : await store.listPeople({ account, isPresent: true, limit: 2 });
  const isShared = people.some((other) => other.id !== id);
  const own = isShared ? null : account;
  const row = account === null ? null : await actions.account(account);
  const fields: Fields = {
    exported_at: isoTime(store.times().atMs),
    person: shownPerson(actions, person),
    sessions: once(async () => (await store.sessionsOf(id)).map(personSessionObject.of)),
    link_seats: once(async () => (await store.links.seatsOf(person)).map(personSeatObject.of)),
    operator_keys: once(async () =>
      (await store.operatorKeys.list()).filter((key) => key.by === by).map(operatorKeyObject.of),
    ),
    changes_about: changesAbout(store, id, own),
    changes_by: changesBy(store, by),
    account: row && accountObject.of(isShared ? { ...row, contact: noContact } : row),
    account_shared: isShared,
    keys: once(async () => (account === null ? [] : (await store.keys(account)).map(keyObject.of))),
    journal: journalOf(store, own),
    receipts: receiptsOf(store, own),
  };
  let before = "{";
  for (const [name, value] of Object.entries(fields)) {
    yield `${before}${JSON.stringify(name)}:`;
    if (isList(value)) yield* arrayOf(value);
    else yield JSON.stringify(value);
    before = ",\n";
  }
  yield "}\n";
}

function isList(value: unknown): value is List<object> {
  return typeof value === "object" && value !== null && Symbol.asyncIterator in value;
}

async function* arrayOf(list: List<object>): AsyncGenerator<string, void, undefined> {
  let before = "[";
  for await (const rows of list) {
    if (rows.length > 0) yield before + rows.map((row) => JSON.stringify(row)).join(",\n");
    if (rows.length > 0) before = ",\n";
  }
  yield before === "[" ? "[]" : "]";
}

async function* once<Row>(read: () => Promise<Row[]>): List<Row> {
  yield await read();
}

/** Changes of the person, and of the contact of an account that only the person has. */
async function* changesAbout(store: Store, id: string, account: string | null) {
  for await (const rows of changesOf(store, { subject: id })) yield rows.map(changeObject.of);
  if (account === null) return;
  for await (const rows of changesOf(store, { account, kind: "contact" })) yield rows.map(changeObject.of);
}

/** Without values: they can be about other people. */
async function* changesBy(store: Store, by: string) {
  const nothing = { before: null, after: null, outcome: null };
  for await (const rows of changesOf(store, { by }))
    yield rows.map((row) => changeObject.of({ ...row, ...nothing }));
}

function changesOf(store: Store, query: Partial<ChangesQuery>) {
  return pagesOf((after: ChangePlace | undefined) => store.changes({ ...query, after, limit: pageRows }));
}

async function* journalOf(store: Store, account: string | null) {
  if (account === null) return;
  const pages = pagesOf((last: { seq: number } | undefined) =>
    store.journal(account, { afterSeq: last?.seq, limit: pageRows }),
  );
  for await (const rows of pages) yield rows.map(journalObject.of);
}

async function* receiptsOf(store: Store, account: string | null) {
  if (account === null) return;
  for await (const rows of usagePages(store, { account })) yield rows.map(usageObject.of);
}

/** Reads pages. `read` gets the last row of the page before. */
async function* pagesOf<Place, Row extends Place>(
  read: (last: Place | undefined) => Promise<Row[]>,
): List<Row> {
  for (let last: Row | undefined; ; ) {
    const rows = await read(last);
    yield rows;
    last = rows.at(-1);
    if (rows.length < pageRows) return;
  }
}
