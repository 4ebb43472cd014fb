/** The fields of every list: `?limit&after`. Pages bundle this file. */
import { type Field, optional, optionally } from "./field.ts";

export const rowsMax = 500;
export const rowsDefault = 100;

const cursor: Field<string> = {
  kind: "text",
  pattern: /^[^\p{Cc}\p{Cs}]{1,300}$/u,
  rule: "the `next` of the page before",
};

/** The fields of every list. */
export const pageFields = {
  limit: optionally.number({ min: 1, max: rowsMax }, "a whole number", { note: ` (default ${rowsDefault})` }),
  after: optional(cursor),
};

/** The same for commands that show one page. */
export const pageOptions = {
  limit: { ...pageFields.limit, option: "--limit <rows>", about: `rows of a page (default: ${rowsDefault})` },
  after: { ...pageFields.after, option: "--after <place>", about: "rows after this one" },
};
