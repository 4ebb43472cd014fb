/** Suspending, resuming, closing, the end date, the contact, and the invitation of an account. */

import { changeState, inviteAccount, setContact, setEnd, stateForms } from "../../../actions/accounts.ts";
import { ActionDialog } from "../../shared/action-dialog.tsx";
import { apiPath, get } from "../../shared/api.ts";
import { counted, wholeNumber } from "../../shared/numbers.ts";
import { Secret } from "../../shared/secret.tsx";
import type { Balance, Key, Page } from "../../shared/types.ts";
import type { Account } from "../types.ts";

interface Props {
  account: Account;
  close(isDone: boolean): void;
}

function changeTo(state: keyof typeof stateForms) {
  const { title, submit, intro } = stateForms[state];
  return ({ account: { id }, close }: Props) => (
    <ActionDialog
      action={changeState}
      target={{ account: id, state }}
      title={`${title} ${id}`}
      submit={submit}
      isDangerous={state !== "active"}
      intro={<p>{intro}</p>}
      {...(state === "closed" ? { preview: () => lossOf(id) } : {})}
      close={close}
    />
  );
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

export const Suspend = changeTo("suspended");
export const Resume = changeTo("active");
export const Close = changeTo("closed");

export function SetEnd({ account: { id, ends_at }, close }: Props) {
  return (
    <ActionDialog
      action={setEnd}
      target={{ account: id }}
      subject={id}
      before={{ ends_at }}
      preview={async ({ ends_at: endsAt }) => {
        if (endsAt === undefined) return <p>The end date stays as it is.</p>;
        if (endsAt === null) return <p>The account has no end date any more.</p>;
        return Date.parse(String(endsAt)) <= Date.now() ? (
          <p>
            <strong>This time has passed: the account closes now, for good.</strong>
          </p>
        ) : (
          <p>
            The account closes at {String(endsAt).slice(0, 16).replace("T", " ")} UTC. Until then you can
            change the date.
          </p>
        );
      }}
      close={close}
    />
  );
}

export function ChangeContact({ account, close }: Props) {
  return (
    <ActionDialog
      action={setContact}
      target={{ account: account.id }}
      subject={account.id}
      before={account}
      close={close}
    />
  );
}

export function InvitePerson({ account: { id, email }, close }: Props) {
  return (
    <ActionDialog
      action={inviteAccount}
      target={{ account: id }}
      subject={id}
      initial={{ email: email ?? "" }}
      result={({ link }) =>
        link === null ? undefined : <Secret secret={link} of="invitation" lost="Make another link." />
      }
      close={close}
    />
  );
}
