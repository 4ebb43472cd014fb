/** Suspending, resuming, closing, the end date, the contact, and the invitation of an account. */

import { changeState, inviteAccount, setContact, setEnd } from "../../../actions/accounts.ts";
import { apiPath, get } from "../../shared/api.ts";
import { counted, wholeNumber } from "../../shared/numbers.ts";
import type { ListAction, Parts } from "../../shared/resource-page.tsx";
import { Secret } from "../../shared/secret.tsx";
import type { Balance, Key, Page } from "../../shared/types.ts";
import type { Account } from "../types.ts";

/** Changes of an account that is not closed. */
export function changesOf(account: Account, of: Parts): readonly ListAction[] {
  const { id, state, ends_at } = account;
  return [
    { title: "Invite a person", ...invitePerson(account, of) },
    changeContact(account, of),
    { title: "Set the end date", action: setEnd, parts: { ...of, before: { ends_at }, preview: endText } },
    state === "active" ? stateChange("Suspend", id, "suspended") : stateChange("Resume", id, "active"),
    { ...stateChange("Close for good", id, "closed", lossOf), look: "danger" },
  ];
}

/** `way`: how the invitation is sent unless the operator changes it. */
export function invitePerson({ email }: Account, of: Parts, way = "link") {
  const result = ({ link }: { link: string | null }) =>
    link === null ? undefined : <Secret secret={link} of="invitation" lost="Make another link." />;
  return { action: inviteAccount, parts: { ...of, initial: { email: email ?? "", send: way }, result } };
}

export function changeContact(account: Account, of: Parts): ListAction {
  return { title: "Edit the contact", action: setContact, parts: { ...of, before: account } };
}

function stateChange(title: string, id: string, state: string, lost?: typeof lossOf): ListAction {
  const parts = { target: { account: id, state }, subject: id, ...(lost && { preview: () => lost(id) }) };
  return { title, action: changeState, parts };
}

/** What is lost with an account that closes. */
async function lossOf(id: string) {
  const [{ balances }, keys] = await Promise.all([
    get<Balance>(apiPath("accounts", id, "balance")),
    get<Page<Key>>(apiPath("accounts", id, "keys"), { limit: 500 }),
  ]);
  const valid = keys.data.filter(({ revoked_at }) => revoked_at === null).length;
  return (
    <p>
      {wholeNumber(balances.base.credits)} base and {wholeNumber(balances.overage.credits)} overage credits
      lapse, {wholeNumber(balances.additional.credits)} additional credits stay. {counted(valid, "key")} can
      send no more requests.
    </p>
  );
}

async function endText({ ends_at: endsAt }: Readonly<Record<string, unknown>>) {
  if (endsAt === undefined) return <p>The end date stays as it is.</p>;
  if (endsAt === null) return <p>The account has no end date any more.</p>;
  return Date.parse(String(endsAt)) <= Date.now() ? (
    <p>
      <strong>This time has passed: the account closes now, for good.</strong>
    </p>
  ) : (
    <p>
      The account closes at {String(endsAt).slice(0, 16).replace("T", " ")} UTC. Until then you can change the
      date.
    </p>
  );
}
