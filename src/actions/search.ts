/** One search for operators. Pages bundle this file. */
import * as rules from "../accounts/value-rules.ts";
import { action } from "./action.ts";
import { optionally, text } from "./field.ts";

/** Whether a text begins as a key does. Searches stand in addresses, and in logs of proxies. */
export function isSecret(text: string): boolean {
  return /^\s*(?:ink|iko)_\w{20}/.test(text);
}

export const search = action({
  id: "search",
  title: "Find accounts, people, keys, payments and requests",
  help:
    "By the beginning of an id, with or without `chatcmpl-`, `key_` or `person_`. Accounts also by owner, e-mail and external id, people by name, e-mail and `sub`, keys by name and the end of the secret: each word of the text begins a word there, in any case and without accents. " +
    "`detail` is the external id of an account, the end of a key's secret, or the model of a request.",
  http: "GET /admin/search",
  cli: "find <text>",
  examples: ["find muller", "find chatcmpl-019a0c3e"],
  role: "viewer",
  input: {
    text: text(rules.note, { about: "the beginning of an id, or of words of a name or an address" }),
    limit: optionally.number({ min: 1, max: 20 }, "a whole number", {
      note: ", of each kind (default 5)",
      option: "--limit <rows>",
      about: "rows of each kind (default: 5)",
    }),
  },
  check: ({ text }) =>
    isSecret(text)
      ? {
          param: "text",
          message: "text must be no secret. Use POST /admin/keys/lookup, or the command key lookup.",
        }
      : null,
  refuses: ["list_too_slow", "missing_required_parameter"],
});
