/** Suspending, resuming, closing, the end date, and the contact of an account. */

import { ActionDialog } from "../../shared/action.tsx";
import { apiPath, get, send } from "../../shared/api.ts";
import { momentIn } from "../../shared/field.tsx";
import { counted, wholeNumber } from "../../shared/numbers.ts";
import type { Balance, Key, Page } from "../../shared/types.ts";
import type { Account } from "../types.ts";

interface Props {
  account: Account;
  close(isDone: boolean): void;
}

const changes = {
  suspend: {
    ...{ title: "Suspend", state: "suspended", submit: "Suspend the account" },
    intro: "New requests are refused. Running requests finish, and the windows continue. You can resume it.",
  },
  resume: {
    ...{ title: "Resume", state: "active", submit: "Resume the account" },
    intro: "Requests are answered again, with the credits that the account has now.",
  },
  close: {
    ...{ title: "Close", state: "closed", submit: "Close for good" },
    intro:
      "This is final. Base and overage credits lapse, and requests of all keys are refused. Additional credits stay, and payments can be refunded.",
  },
} as const;

export function ChangeState({ account: { id }, change, close }: Props & { change: keyof typeof changes }) {
  const { title, state, submit, intro } = changes[change];
  const preview = async () => {
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
  };
  return (
    <ActionDialog
      title={`${title} ${id}`}
      kind={change}
      submit={submit}
      isDangerous={change !== "resume"}
      intro={<p>{intro}</p>}
      {...(change === "close" ? { preview } : {})}
      send={async (_values, operationId) => {
        await send("POST", apiPath("accounts", id, "state"), { operation_id: operationId, state });
        return { done: `The account ${id} is ${state}.` };
      }}
      close={close}
    />
  );
}

export function SetEnd({ account: { id, ends_at }, close }: Props) {
  return (
    <ActionDialog
      title={`Set the end date of ${id}`}
      kind="end"
      submit="Set the end date"
      isDangerous
      intro={<p>The account closes at this time, for good. Leave it empty to remove the end date.</p>}
      fields={[
        {
          ...{
            name: "ends_at",
            label: "Closes at (UTC)",
            kind: "moment",
            initial: ends_at?.slice(0, 16) ?? "",
          },
        },
      ]}
      preview={async ({ ends_at: typed = "" }) => {
        const endsAt = momentIn(typed);
        if (endsAt === null) return <p>The account has no end date any more.</p>;
        return Date.parse(endsAt) <= Date.now() ? (
          <p>
            <strong>This time has passed: the account closes now, for good.</strong>
          </p>
        ) : (
          <p>
            The account closes at {endsAt.slice(0, 16).replace("T", " ")} UTC. Until then you can change the
            date.
          </p>
        );
      }}
      send={async (values, operationId) => {
        const endsAt = momentIn(values.ends_at ?? "");
        await send("POST", apiPath("accounts", id, "end"), { operation_id: operationId, ends_at: endsAt });
        return { done: endsAt === null ? "The end date was removed." : "The end date is set." };
      }}
      close={close}
    />
  );
}

export function ChangeContact({ account, close }: Props) {
  const names = ["owner", "email", "external_id", "note"] as const;
  const labels = { owner: "Owner", email: "E-mail", external_id: "External id", note: "Note" };
  return (
    <ActionDialog
      title={`Edit the contact of ${account.id}`}
      kind="contact"
      submit="Save the contact"
      fields={names.map((name) => ({
        ...{ name, label: labels[name], initial: account[name] ?? "" },
        kind: name === "email" ? "email" : "text",
      }))}
      send={async (values) => {
        const typed = names.map((name) => [name, values[name]?.trim() || null]);
        await send("PATCH", apiPath("accounts", account.id, "contact"), Object.fromEntries(typed));
        return { done: "The contact is saved." };
      }}
      close={close}
    />
  );
}
