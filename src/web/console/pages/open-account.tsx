/** Opening an account with a key, and handing the key over. */
import { useRef } from "preact/hooks";
import { openAccount } from "../../../actions/accounts.ts";
import { inputsOf, jsonIn, withOptions, withoutNulls } from "../../shared/action-fields.ts";
import { ApiError, apiPath, create, get, send } from "../../shared/api.ts";
import { FormDialog, LoadedDialog } from "../../shared/form-dialog.tsx";
import { NewSecret } from "../../shared/key-dialogs.tsx";
import { Actions, type ListAction } from "../../shared/resource-page.tsx";
import { go, pathTo } from "../../shared/router.tsx";
import type { NewKey, Page } from "../../shared/types.ts";
import type { Account, Overview, Plan } from "../types.ts";
import { invitePerson } from "./account-state.tsx";
import { TryKey } from "./try-key.tsx";

const keyInput = {
  name: "key",
  label: "Key",
  kind: "select",
  isRequired: true,
  initial: "first",
  options: [
    ["first", "Make one, to hand over now"],
    ["none", "None yet"],
  ],
} as const;

export function OpenAccount({ close }: { close(): void }) {
  return (
    <LoadedDialog
      title="Open an account"
      of="choices"
      load={async (signal) => ({
        plans: (await get<Page<Plan>>("/admin/plans", { limit: 500 }, signal)).data,
        overview: await get<Overview>("/admin/overview", {}, signal),
      })}
      close={close}
    >
      {(choices) => <OpenForm {...choices} close={close} />}
    </LoadedDialog>
  );
}

function OpenForm(props: { plans: readonly Plan[]; overview: Overview; close(): void }) {
  const { plans, overview, close } = props;
  const sentId = useRef("");
  const offered = plans.filter(({ offered }) => offered).map(({ id }) => [id, id] as const);
  const { form, input } = openAccount;
  const inputs = withOptions(inputsOf(input, { plan: offered[0]?.[0] }), "plan", offered);
  return (
    <FormDialog
      title={form?.title ?? ""}
      kind="open"
      action={openAccount}
      submit={form?.submit ?? ""}
      intro={<p>{form?.intro}</p>}
      fields={[...inputs, keyInput]}
      send={async ({ key: name, ...values }, operationId) => {
        const body = withoutNulls(jsonIn(input, values));
        const { value: account, isNew } = await create<Account>(apiPath("accounts"), body).catch(
          (error: unknown) => {
            if (error instanceof ApiError && (error.status === 0 || error.status >= 500)) {
              sentId.current = String(body.id);
            }
            throw error;
          },
        );
        // The API treats it as a repetition. It is one only if this form has sent it before.
        if (!isNew && sentId.current !== account.id) {
          const message = `Account ${account.id} exists already. Nothing has changed. Choose another id.`;
          throw new ApiError(409, "account_exists", message, "id");
        }
        sentId.current = account.id;
        const done = openAccount.done?.(account) ?? "";
        if (name === "none") return { done };
        const path = apiPath("accounts", account.id, "keys");
        const made = await send<NewKey>("POST", path, { operation_id: operationId, name });
        return { done, result: <HandOver account={account} made={made} overview={overview} /> };
      }}
      close={(isDone) => {
        close();
        if (isDone) go(pathTo("accounts", sentId.current));
      }}
    />
  );
}

/** All that the holder of a new key needs, and ways to give it. */
function HandOver(props: { account: Account; made: NewKey; overview: Overview }) {
  const { account, made, overview } = props;
  const { api, invitations } = overview.links;
  const of = { target: { account: account.id }, subject: account.id };
  const first: ListAction = {
    title: "Send a first request",
    dialog: (close) => <TryKey secret={made.key} models={overview.models} close={close} />,
  };
  const invite: ListAction = { title: "Send as invitation", ...invitePerson(account, of, invitations) };
  return (
    <>
      <NewSecret
        secret={made.key}
        lost="Revoke it on the page of the account, and create another one."
        models={made.models}
        publicUrl={api}
      />
      <p>
        Base URL: <code>{api}/v1</code>
      </p>
      <p class="actions">
        <Actions of={[...(made.key === null ? [] : [first]), ...(invitations === "none" ? [] : [invite])]} />
      </p>
    </>
  );
}
