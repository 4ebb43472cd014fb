/** Options for the contact of an account, and its lines in `account show`. */
import { type Command, InvalidArgumentError } from "commander";
import * as fields from "../accounts/fields.ts";
import { defined } from "../objects.ts";
import type { Contact } from "../store/contacts.ts";
import { id } from "./arguments.ts";

/** An empty text removes the field. */
export interface ContactOptions {
  owner?: string;
  email?: string;
  note?: string;
  externalId?: string;
}

export function withContact(command: Command): Command {
  return command
    .option("--owner <text>", 'the person or company that the account belongs to; "" removes it', owner)
    .option("--email <address>", 'an e-mail address for people; "" removes it', email)
    .option("--note <text>", 'a note of yours; "" removes it', remark)
    .option(
      "--external-id <id>",
      'the id of the account in another system, unique; "" removes it',
      externalId,
    );
}

export const contactText = textOf(fields.contact);
const owner = orEmpty(contactText);
const email = orEmpty(textOf(fields.email));
const remark = orEmpty(textOf(fields.remark));
const externalId = orEmpty(id);

function textOf({ pattern, rule }: fields.TextField): (value: string) => string {
  return (value) => {
    if (pattern.test(value)) return value;
    throw new InvalidArgumentError(`It is ${rule}.`);
  };
}

function orEmpty(read: (value: string) => string): (value: string) => string {
  return (value) => (value === "" ? value : read(value));
}

/** Returns the given fields. */
export function contactOf({ owner, email, note, externalId }: ContactOptions): Partial<Contact> {
  const orNull = (text: string | undefined) => (text === "" ? null : text);
  return defined({
    owner: orNull(owner),
    email: orNull(email),
    note: orNull(note),
    externalId: orNull(externalId),
  });
}

export function contactLines({ owner, email, note, externalId }: Contact): string[] {
  const facts = [
    ["owner", owner],
    ["e-mail", email],
    ["external id", externalId],
    ["note", note],
  ] as const;
  return facts.flatMap(([name, text]) => (text === null ? [] : [`${name}: ${text}`]));
}
