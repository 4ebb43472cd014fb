/** How the service does what operators do with people. */
import Type from "typebox";
import { isoTime, isoTimeOrNull, objectFor, orNull, text, time } from "../accounts/json-objects.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { OperatorRefusal } from "../accounts/refusals.ts";
import { isPersonId, type PersonRow } from "../store/people.ts";
import { linkChange, suspensionChange } from "../store/person-changes.ts";
import { bindFor } from "./bind.ts";
import { pageOf, pageSchema, wrongCursor } from "./pages.ts";
import { changePersonState, linkPerson } from "./people.ts";
import { listPeople } from "./views.ts";

const bind = bindFor<OperatorActions>();
const timeOrNull = orNull(time);

const personObject = objectFor<PersonRow>("Person")({
  id: [text, ({ id }) => id],
  issuer: [text, ({ issuer }) => issuer],
  sub: [text, ({ sub }) => sub],
  name: [orNull(text), ({ name }) => name],
  email: [orNull(text), ({ email }) => email],
  email_verified: [Type.Boolean(), ({ emailVerified }) => emailVerified],
  role: [orNull(text), ({ role }) => role],
  role_matched_at: [timeOrNull, ({ roleMatchedMs }) => isoTimeOrNull(roleMatchedMs)],
  account: [orNull(text), ({ account }) => account],
  account_by: [orNull(text), ({ accountBy }) => accountBy],
  account_matched_at: [timeOrNull, ({ accountMatchedMs }) => isoTimeOrNull(accountMatchedMs)],
  lapsed_at: [timeOrNull, ({ lapsedMs }) => isoTimeOrNull(lapsedMs)],
  suspended_at: [timeOrNull, ({ suspendedMs }) => isoTimeOrNull(suspendedMs)],
  seen_at: [time, ({ seenMs }) => isoTime(seenMs)],
  created_at: [time, ({ createdMs }) => isoTime(createdMs)],
});

export const peopleActions = {
  listPeople: bind(listPeople, pageSchema(personObject.schema), async ({ store }, { limit, ...query }) => {
    if (query.after !== undefined && !isPersonId(query.after)) throw wrongCursor();
    const read = (rows: number) => store.listPeople({ ...query, limit: rows });
    return await pageOf(limit, read, personObject.of, ({ id }) => id);
  }),
  linkPerson: bind(linkPerson, personObject.schema, async (operator, { person: id, account }) => {
    const { store, by } = operator;
    const before = await personOf(operator, id);
    await operator.snapshot(account);
    const change = linkChange(id, account, { by, atMs: store.times().atMs });
    const isLinked = await store.linkPerson(id, { account, by, isFirst: false }, change);
    const now = await personOf(operator, id);
    if (isLinked || (before.account === account && now.account === account)) return personObject.of(now);
    throw new OperatorRefusal(
      "person_linked",
      `Person ${id} has the account ${now.account} already. Nothing has changed.`,
    );
  }),
  changePersonState: bind(changePersonState, personObject.schema, async (operator, { person: id, state }) => {
    const { store, by } = operator;
    const person = await personOf(operator, id);
    const { nowMs, atMs } = store.times();
    const suspendedMs = state === "suspended" ? nowMs : null;
    if ((suspendedMs === null) !== (person.suspendedMs === null)) {
      const change = suspensionChange(person, suspendedMs, { by, atMs });
      await store.setPersonSuspended(id, suspendedMs, change);
    }
    return personObject.of(await personOf(operator, id));
  }),
};

async function personOf({ store }: OperatorActions, id: string): Promise<PersonRow> {
  const person = await store.person(id);
  if (person === null) throw new OperatorRefusal("person_not_found", `There is no person "${id}".`);
  return person;
}
