/**
 * The name and the e-mail address that a front end sends for a person, in headers. Somebody has
 * typed them, so they are for operators to read, and nothing is ever decided by them.
 *
 * Guarantees that a label is short and on one line. Any other value counts as absent.
 */
import { isUtf8 } from "node:buffer";
import type { ActsFor } from "../ledger/rows.ts";
import { defined } from "../objects.ts";
import type { PersonRow } from "../store/people.ts";
import * as rules from "./value-rules.ts";

/** Absent: the request does not say it. */
export type PersonLabels = { [Name in "name" | "email"]?: NonNullable<PersonRow[Name]> };

/** `rawHeaders`: names and values in turn, as Node has received them. */
export function labelsIn(rawHeaders: readonly string[], { nameHeader, emailHeader }: ActsFor): PersonLabels {
  return defined({
    name: labelIn(rawHeaders, nameHeader, rules.contact),
    email: labelIn(rawHeaders, emailHeader, rules.email),
  });
}

function labelIn(rawHeaders: readonly string[], header: string | null, { pattern }: rules.TextField) {
  const [value, ...others] = header === null ? [] : headerValues(rawHeaders, header);
  if (value === undefined || others.length > 0) return undefined;
  const text = decoded(value).trim();
  return pattern.test(text) ? text : undefined;
}

/** Returns the values of a header, one byte as one character. `name`: in lower case. */
export function headerValues(rawHeaders: readonly string[], name: string): string[] {
  return rawHeaders.filter((_, n) => n % 2 === 1 && rawHeaders[n - 1]?.toLowerCase() === name);
}

/** LibreChat sends a name in Latin-1 if it can, and otherwise its UTF-8 in base64 behind this. */
const inBase64 = /^b64:([A-Za-z0-9+/]+=*)$/;
/** Open WebUI escapes the UTF-8 of a name, but not letters, digits, spaces and `_.-~`. */
const escaped = /^(?:[A-Za-z0-9 _.~-]|%[0-9A-F]{2})*$/;

function decoded(value: string): string {
  const base64 = inBase64.exec(value)?.[1];
  const bytes = base64 === undefined ? unescapedBytes(value) : Buffer.from(base64, "base64");
  return isUtf8(bytes) ? bytes.toString("utf8") : value;
}

function unescapedBytes(value: string): Buffer {
  const byteOf = (_: string, hex: string) => String.fromCharCode(Number.parseInt(hex, 16));
  return Buffer.from(escaped.test(value) ? value.replace(/%(..)/g, byteOf) : value, "latin1");
}
