/** What routes share that are not made from actions. */
import Type, { type TSchema } from "typebox";
import { closed } from "../../accounts/json-objects.ts";
import * as rules from "../../accounts/value-rules.ts";
import { propertiesOf } from "../../actions/input.ts";
import { pageFields, pageSchema } from "../../actions/pages.ts";

const accountPath = closed({
  account: Type.String({ pattern: rules.name.pattern.source, description: rules.name.rule }),
});

/** Returns what routes of an account share: its name in the path, and that it may be unknown. */
export function ofAccount() {
  return { params: accountPath, refusals: ["account_not_found"] as const };
}

/** Returns the query and the response of a list without filters. */
export function listOf<S extends TSchema>(item: S) {
  return { querystring: closed(propertiesOf(pageFields)), response: { 200: pageSchema(item) } };
}
