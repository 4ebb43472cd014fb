/** The JSON objects of people, and of everything that the database has about one of them. */
import Type, { type Static } from "typebox";
import { isBehindFrontEnd, type OperatorRole } from "../actors.ts";
import { isNameTyped, type SeatRow } from "../store/links.ts";
import type { PersonRow } from "../store/people.ts";
import type { SessionRow } from "../store/sessions.ts";
import { component, isoTime, isoTimeOrNull, objectFor, orNull, text, time } from "./json-objects.ts";
import { changeObject, operatorKeyObject } from "./log-objects.ts";
import { accountObject, journalObject, keyObject, usageObject } from "./operator-objects.ts";
import type { PersonRoles } from "./signed-in-people.ts";

const timeOrNull = orNull(time);

export const personObject = objectFor<PersonRow & { role: OperatorRole | null }>("Person")({
  id: [text, ({ id }) => id],
  issuer: [text, ({ issuer }) => issuer],
  sub: [Type.String({ description: "of an erased person, `erased:` and the id" }), ({ sub }) => sub],
  name: [
    orNull(Type.String({ description: "as the issuer, the front end or the person says it" })),
    ({ name }) => name,
  ],
  name_confirmed: [
    Type.Boolean({ description: "false: a front end says it, or the person who has joined by a link" }),
    (person) => !isBehindFrontEnd(person) && !isNameTyped(person),
  ],
  email: [orNull(text), ({ email }) => email],
  email_verified: [Type.Boolean(), ({ emailVerified }) => emailVerified],
  role: [orNull(text), ({ role }) => role],
  role_rule: [
    orNull(Type.String({ description: "the role that a rule gave last, and the condition of the rule" })),
    ({ roleRule }) => roleRule,
  ],
  role_matched_at: [timeOrNull, ({ roleMatchedMs }) => isoTimeOrNull(roleMatchedMs)],
  account: [orNull(text), ({ account }) => account],
  account_by: [orNull(text), ({ accountBy }) => accountBy],
  account_matched_at: [timeOrNull, ({ accountMatchedMs }) => isoTimeOrNull(accountMatchedMs)],
  lapsed_at: [timeOrNull, ({ lapsedMs }) => isoTimeOrNull(lapsedMs)],
  suspended_at: [timeOrNull, ({ suspendedMs }) => isoTimeOrNull(suspendedMs)],
  erased_at: [timeOrNull, ({ erasedMs }) => isoTimeOrNull(erasedMs)],
  seen_at: [time, ({ seenMs }) => isoTime(seenMs)],
  created_at: [time, ({ createdMs }) => isoTime(createdMs)],
});
export type PersonJson = Static<typeof personObject.schema>;

export function shownPerson(roles: PersonRoles, person: PersonRow): PersonJson {
  return personObject.of({ ...person, role: roles.roleNow(person) });
}

/** Without its hash and the refresh token. */
export const personSessionObject = objectFor<SessionRow>("PersonSession")({
  kind: [text, ({ kind }) => kind],
  created_at: [time, ({ createdMs }) => isoTime(createdMs)],
  used_at: [time, ({ usedMs }) => isoTime(usedMs)],
  ends_at: [time, ({ endsMs }) => isoTime(endsMs)],
  ended_at: [timeOrNull, ({ endedMs }) => isoTimeOrNull(endedMs)],
  checked_at: [timeOrNull, ({ checkedMs }) => isoTimeOrNull(checkedMs)],
});

export const personSeatObject = objectFor<SeatRow>("PersonSeat")({
  link: [text, ({ link }) => link],
  account: [orNull(text), ({ account }) => account],
  name: [orNull(text), ({ name }) => name],
  email: [orNull(text), ({ email }) => email],
  asked_at: [time, ({ askedMs }) => isoTime(askedMs)],
  joined_at: [timeOrNull, ({ joinedMs }) => isoTimeOrNull(joinedMs)],
});

export const personDataSchema = component("PersonData", {
  exported_at: time,
  person: personObject.schema,
  sessions: Type.Array(personSessionObject.schema),
  link_seats: Type.Array(personSeatObject.schema, {
    description: "seats of links, and requests for one with the same address that wait",
  }),
  operator_keys: Type.Array(operatorKeyObject.schema, { description: "those that the person has made" }),
  changes_about: Type.Array(changeObject.schema, { description: "changes of the person" }),
  changes_by: Type.Array(changeObject.schema, {
    description: "changes by the person; without values and notes, if they are of other accounts",
  }),
  account: orNull(accountObject.schema),
  account_shared: Type.Boolean({
    description: "whether other people have the account: its contact, journal and receipts are left out then",
  }),
  keys: Type.Array(keyObject.schema),
  journal: Type.Array(journalObject.schema),
  receipts: Type.Array(usageObject.schema),
});
export type PersonDataJson = Static<typeof personDataSchema>;
