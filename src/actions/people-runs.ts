/** How the service does what operators do with people. */
import { Readable } from "node:stream";
import { normalPerson, personProblem } from "../accounts/front-ends.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { personData } from "../accounts/person-data.ts";
import { personDataSchema, personObject, shownPerson } from "../accounts/person-objects.ts";
import { invalidValue, requireFresh } from "../accounts/refusals.ts";
import { issuerOfFrontEnd } from "../actors.ts";
import { Refusal } from "../errors.ts";
import { unknownName } from "../spelling.ts";
import { isPersonId, newPerson, type PersonRow } from "../store/people.ts";
import { eraseChange, linkChange, suspensionChange } from "../store/person-changes.ts";
import { bindFor } from "./bind.ts";
import { pageOf, pageSchema, wrongCursor } from "./pages.ts";
import { addPerson, changePersonState, erasePerson, exportPerson, linkPerson } from "./people.ts";
import { listPeople } from "./views.ts";

const bind = bindFor<OperatorActions>();

export const peopleActions = {
  listPeople: bind(listPeople, pageSchema(personObject.schema), async (operator, { limit, ...query }) => {
    if (query.after !== undefined && !isPersonId(query.after)) throw wrongCursor();
    const read = (rows: number) => operator.store.listPeople({ ...query, limit: rows });
    return await pageOf(
      limit,
      read,
      (person) => shownPerson(operator, person),
      ({ id }) => id,
    );
  }),
  addPerson: bind(addPerson, personObject.schema, async (operator, { frontEnd, value, account }) => {
    const { store } = operator;
    await operator.snapshot(account);
    const problem = personProblem(value);
    if (problem !== null) throw invalidValue("value", `value ${problem}.`);
    const names = await store.frontEnds();
    if (!names.includes(frontEnd)) throw invalidValue("front_end", unknownName("front end", frontEnd, names));
    const person = { issuer: issuerOfFrontEnd(frontEnd), sub: normalPerson(value) };
    const { id } = await store.addPerson(newPerson(person, store.times().nowMs));
    return shownPerson(operator, await link(operator, id, account));
  }),
  linkPerson: bind(linkPerson, personObject.schema, async (operator, { person: id, account }) => {
    await presentPerson(operator, id);
    await operator.snapshot(account);
    return shownPerson(operator, await link(operator, id, account));
  }),
  changePersonState: bind(changePersonState, personObject.schema, async (operator, { person: id, state }) => {
    const { store, by } = operator;
    const person = await presentPerson(operator, id);
    const { nowMs, atMs } = store.times();
    const suspendedMs = state === "suspended" ? nowMs : null;
    if ((suspendedMs === null) !== (person.suspendedMs === null)) {
      const change = suspensionChange(person, suspendedMs, { by, atMs });
      await store.setPersonSuspended(id, suspendedMs, change);
    }
    return shownPerson(operator, await presentPerson(operator, id));
  }),
  exportPerson: bind(exportPerson, personDataSchema, async (operator, { person: id }) =>
    Readable.from(personData(operator, await personOf(operator, id))),
  ),
  erasePerson: bind(erasePerson, personObject.schema, async (operator, { person: id }) => {
    const { store, by, actor } = operator;
    requireFresh(actor);
    const { nowMs, atMs } = store.times();
    await store.erasePerson(id, nowMs, eraseChange(id, { by, atMs }));
    return shownPerson(operator, await personOf(operator, id));
  }),
};

async function personOf({ store }: OperatorActions, id: string): Promise<PersonRow> {
  const person = await store.person(id);
  if (person === null) throw new Refusal("person_not_found", `There is no person "${id}".`);
  return person;
}

/** Links an account to a person who has none, or has this one. */
async function link(operator: OperatorActions, id: string, account: string): Promise<PersonRow> {
  const { store, by } = operator;
  const change = linkChange(id, account, { by, atMs: store.times().atMs });
  await store.linkPerson(id, { account, by, isFirst: false }, change);
  const now = await presentPerson(operator, id);
  if (now.account === account) return now;
  throw new Refusal(
    "person_linked",
    `Person ${id} has the account ${now.account} already. Nothing has changed.`,
  );
}

/** Returns a person who is not erased. */
async function presentPerson(operator: OperatorActions, id: string): Promise<PersonRow> {
  const person = await personOf(operator, id);
  if (person.erasedMs === null) return person;
  throw new Refusal(
    "person_erased",
    `The data of person ${id} is erased, which is final. Nothing has changed.`,
  );
}
