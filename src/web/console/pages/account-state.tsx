/** Suspending, resuming, closing, the end date, the contact, and the invitation of an account. */

import { changeState, inviteAccount, setContact, setEnd, stateForms } from "../../../actions/accounts.ts";
import { apiPath, get } from "../../shared/api.ts";
import { counted, wholeNumber } from "../../shared/numbers.ts";
import { Secret } from "../../shared/secret.tsx";
import type { Balance, Key, Page } from "../../shared/types.ts";
import { accountChange } from "./account-dialog.tsx";

const changeTo = (state: keyof typeof stateForms) => {
  const { title, submit, intro } = stateForms[state];
  return accountChange(
    changeState,
    ({ id }) => ({
      title: `${title} ${id}`,
      submit,
      isDangerous: state !== "active",
      intro: <p>{intro}</p>,
      ...(state === "closed" ? { preview: () => lossOf(id) } : {}),
    }),
    { state },
  );
};

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

export const suspend = changeTo("suspended");
export const resume = changeTo("active");
export const close = changeTo("closed");

export const changeEnd = accountChange(setEnd, ({ ends_at }) => ({
  before: { ends_at },
  preview: async ({ ends_at: endsAt }) => {
    if (endsAt === undefined) return <p>The end date stays as it is.</p>;
    if (endsAt === null) return <p>The account has no end date any more.</p>;
    return Date.parse(String(endsAt)) <= Date.now() ? (
      <p>
        <strong>This time has passed: the account closes now, for good.</strong>
      </p>
    ) : (
      <p>
        The account closes at {String(endsAt).slice(0, 16).replace("T", " ")} UTC. Until then you can change
        the date.
      </p>
    );
  },
}));

export const changeContact = accountChange(setContact, (account) => ({ before: account }));

export const invitePerson = accountChange(inviteAccount, ({ email }) => ({
  initial: { email: email ?? "" },
  result: ({ link }) =>
    link === null ? undefined : <Secret secret={link} of="invitation" lost="Make another link." />,
}));
