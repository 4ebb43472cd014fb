/** How the service does what operators do with links. */

import type { Static } from "typebox";
import { closed } from "../accounts/json-objects.ts";
import {
  linkAccountObject,
  linkClosingObject,
  linkObject,
  newLinkObject,
  seatCounts,
} from "../accounts/link-objects.ts";
import type { OperatorActions } from "../accounts/operator-actions.ts";
import { refusalOf } from "../ledger/refusals.ts";
import type { LinkRow } from "../store/links.ts";
import { bindFor } from "./bind.ts";
import { Created } from "./created.ts";
import { closeLinkAccounts, createLink, endLink, rotateLink, setLink } from "./links.ts";
import { pageOf, pageSchema, placeCursor, placeIn, seqIn } from "./pages.ts";
import { listLinks, showLink } from "./views.ts";

const bind = bindFor<OperatorActions>();

/** Accounts that are closed at the same time. */
const closedAtOnce = 50;

const linkPage = closed({
  ...pageSchema(linkAccountObject.schema).properties,
  link: linkObject.schema,
  seats: seatCounts,
});

export type LinkPageJson = Static<typeof linkPage>;

export const linkActions = {
  createLink: bind(createLink, newLinkObject.schema, async (operator, { operationId, ...given }) => {
    const { link, row } = await operator.links.make(operationId, given);
    const made = newLinkObject.of({ link, ...at(operator, row) });
    return link === null ? made : new Created(made);
  }),
  listLinks: bind(listLinks, pageSchema(linkObject.schema), async (operator, { limit, after }) => {
    const place = placeIn(after);
    const from = place && { id: place.account, createdMs: seqIn(place.rest) };
    return await pageOf(
      limit,
      (rows) => operator.store.links.list({ after: from, limit: rows }),
      (row) => linkObject.of(at(operator, row)),
      (row) => placeCursor(row.id, row.createdMs),
    );
  }),
  showLink: bind(showLink, linkPage, async (operator, { link: id, limit, after }) => {
    const { store } = operator;
    const row = await operator.links.row(id);
    const page = await pageOf(
      limit,
      (rows) => store.links.accounts(id, { after, limit: rows }),
      linkAccountObject.of,
      ({ account }) => account,
    );
    const seats = await store.links.counts(id, store.times().nowMs);
    return { ...page, link: linkObject.of(at(operator, row)), seats };
  }),
  setLink: bind(setLink, linkObject.schema, async (operator, { link, ...given }) =>
    linkObject.of(at(operator, await operator.links.set(link, given))),
  ),
  rotateLink: bind(rotateLink, newLinkObject.schema, async (operator, { link: id }) => {
    const { link, row } = await operator.links.rotate(id);
    return new Created(newLinkObject.of({ link, ...at(operator, row) }));
  }),
  endLink: bind(endLink, linkObject.schema, async (operator, { link }) =>
    linkObject.of(at(operator, await operator.links.end(link))),
  ),
  closeLinkAccounts: bind(closeLinkAccounts, linkClosingObject.schema, async (operator, { link: id }) => {
    await operator.links.row(id);
    const accounts = await closeAccounts(operator, id);
    return linkClosingObject.of({ link: at(operator, await operator.links.row(id)), closed: accounts });
  }),
};

function at({ store }: OperatorActions, row: LinkRow) {
  return { row, atMs: store.times().atMs };
}

/** Returns how many accounts of the link are closed. */
async function closeAccounts(operator: OperatorActions, link: string): Promise<number> {
  const { store, ledger, by } = operator;
  const close = async (account: string) => {
    const op = `close ${account} of ${link}`;
    const outcome = await ledger.apply({ kind: "state", account, op, to: { kind: "close" }, by });
    if (outcome.kind !== "changed" && outcome.kind !== "account_closed") throw refusalOf(outcome);
  };
  for (let [after, count]: [string | undefined, number] = [undefined, 0]; ; ) {
    const rows = await store.links.accounts(link, { after, limit: closedAtOnce });
    const open = rows.filter(({ state }) => state !== "closed");
    await Promise.all(open.map(({ account }) => close(account)));
    count += rows.length;
    after = rows.at(-1)?.account;
    if (rows.length < closedAtOnce) return count;
  }
}
