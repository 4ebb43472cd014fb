/**
 * Rules for the values that operators choose: names of accounts and plans, labels of keys, notes
 * in the journal, limits and credits. Actions and the configuration share them.
 */
import { creditsMax } from "../units.ts";

export interface TextField {
  pattern: RegExp;
  /** Completes "It must be ...". */
  rule: string;
}

/** A whole number. */
export interface NumberField {
  min: number;
  max: number;
}

/**
 * Control characters, line separators, and lone surrogates, which no database returns unchanged.
 * Characters that reverse the direction of text are refused too: a holder of a key could make its
 * name read as another one on the operator's pages.
 */
const refused = "\\p{Cc}\\p{Cs}\\p{Zl}\\p{Zp}\\u202A-\\u202E\\u2066-\\u2069";

/** For accounts and plans. Names are plain because paths, files and shells use them. */
export const name: TextField = {
  pattern: /^[a-z0-9][a-z0-9._-]{0,63}$/,
  rule: "1 to 64 characters: lower-case letters, digits, dots, dashes and underscores, the first a letter or a digit",
};

/** For ids of events, as receivers get them. */
export const event: TextField = {
  pattern: /^evt_[0-9a-f]{32}$/,
  rule: "the id of an event: evt_ and 32 digits and letters a to f",
};

/** For reasons, which the journal keeps. */
export const note = plainText(200);

/** For ids of payments, refunds, operations and other systems. `idProblem` has the other rules. */
export const id: TextField = {
  pattern: /^[\s\S]{1,200}$/u,
  rule: "1 to 200 visible characters, without white space at the ends",
};

/**
 * Characters without a shape of their own: control characters, invisible and blank characters, and
 * the replacement of bytes that are no text.
 */
const unclear = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{DI}\u2800\uFFFD\u{1D159}]|[^\S ]/u;

/**
 * Describes why a text cannot be an id: of two texts that look the same, each would take effect.
 * Null: it can.
 */
export function idProblem(text: string): string | null {
  const outer = /^\s|\s$/u.exec(text)?.[0];
  if (outer !== undefined) return `begins or ends with white space, ${codePointOf(outer)}`;
  const hidden = unclear.exec(text)?.[0];
  if (hidden !== undefined) return `has ${codePointOf(hidden)}, which cannot be told from other characters`;
  const normal = [...text.normalize("NFC")];
  const characters = [...text];
  const at = characters.findIndex((character, n) => character !== normal[n]);
  if (at === -1) return null;
  const found = characters.slice(at, at + 2).map(codePointOf);
  return `is not in the normal form NFC: it has ${found.join(" ")} in place of ${codePointOf(normal[at] ?? "")}`;
}

function codePointOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** For the owner and the external id of an account. */
export const contact = plainText(200);

/** For the name that somebody who joins by a link types. */
export const typedName = plainText(100);

/** For the note of an account. */
export const remark = plainText(1000);

export const email: TextField = {
  pattern: new RegExp(`^(?=.{3,254}$)[^\\s@${refused}]+@[^\\s@${refused}]+$`, "u"),
  rule: "an e-mail address such as ada@example.com, of up to 254 characters",
};

/** For the part of an address after the last `@`. */
export const domain: TextField = {
  pattern: new RegExp(`^[^\\s@${refused}]{1,253}$`, "u"),
  rule: "the part of e-mail addresses after the @, such as uni.example",
};

/** Accounts that a link opens. */
export const seats: NumberField = { min: 1, max: 10_000 };

/** For the names of front ends. */
export const frontEnd: TextField = {
  pattern: /^[a-z0-9][a-z0-9_-]{0,31}$/,
  rule: "1 to 32 characters: lower-case letters, digits, dashes and underscores, the first a letter or a digit",
};

/** Clients, proxies and Inkwell itself give these headers a meaning. */
const otherHeaders = [
  "accept.*|authorization|connection|content-.*|cookie|date|expect|forwarded|from|host|origin|referer",
  "te|trailer|transfer-encoding|upgrade|user-agent|via|x-forwarded-.*|x-real-ip|x-request-id|traceparent",
].join("|");

/** For the header in which a front end names a person. */
export const personHeader: TextField = {
  pattern: new RegExp(`^(?!(?:${otherHeaders})$)[a-z0-9-]{1,64}$`),
  rule: "the name of a header in lower case, such as x-openwebui-user-id, that has no other meaning",
};

/** For the value by which a front end names a person. `personProblem` has the other rules. */
export const personValue: TextField = {
  pattern: /^[\s\S]{1,255}$/u,
  rule: "1 to 255 visible characters, without white space at the ends",
};

/** Accounts that a front end opens in a day. */
export const newAccounts: NumberField = { min: 1, max: 1_000_000 };

/** For a kind of mail about an account. */
export const onOrOff = ["on", "off"] as const;

/** For labels of keys. */
export const label = plainText(64);

/**
 * Keys of an account, ended keys included, beyond which only the operator creates more. Ended keys
 * count, because they are never deleted.
 */
export const accountKeysMax = 500;

/** For each limit of a plan or a key. */
export const limit: NumberField = { min: 1, max: 1_000_000_000 };

export const topup: NumberField = { min: 1, max: creditsMax };

/**
 * Of a million tokens. 100 credits for each token of the largest context window still add up to a
 * safe integer.
 */
export const price: NumberField = { min: 0, max: 100_000_000 };

/** Most caps of a plan, and of a key. */
export const capsMax = 4;

/** Cap of a key. 0 pauses it. */
export const cap: NumberField = { min: 0, max: creditsMax };

export const capName: TextField = {
  pattern: /^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$/,
  rule: "1 to 40 letters, digits, dots, dashes and underscores",
};

/** 0 is refused separately. */
export const adjustment: NumberField = { min: -creditsMax, max: creditsMax };

/** Time for which the old secret stays valid after a rotation, if none is given. */
export const defaultOverlap = "P1D";
/** In place of a period: the old secret ends at once. */
export const noOverlap = "none";
export const overlapRule = `an ISO 8601 period of at most a year, or "${noOverlap}" (default ${defaultOverlap})`;

/** With a visible character, and without the `refused` ones. */
function plainText(charactersMax: number): TextField {
  return {
    pattern: new RegExp(`^(?=.*[^\\s\\p{DI}])[^${refused}]{1,${charactersMax}}$`, "u"),
    rule: `a text of 1 to ${charactersMax} characters on one line, without control characters`,
  };
}
