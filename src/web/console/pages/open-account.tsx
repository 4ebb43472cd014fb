/** Opening an account with a key, and handing the key over. */
import { useRef } from "preact/hooks";
import { openAccount } from "../../../actions/accounts.ts";
import { makeKey } from "../../../actions/keys.ts";
import { ActionDialog, type ActionProps } from "../../shared/action-dialog.tsx";
import { withOptions } from "../../shared/action-fields.ts";
import { ApiError, apiPath, create, get, run } from "../../shared/api.ts";
import { LoadedDialog } from "../../shared/form-dialog.tsx";
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

export const opening: ListAction = {
  title: openAccount.title,
  action: openAccount,
  dialog: (close) => <OpenAccount close={close} />,
};

function OpenAccount({ close }: { close(isDone?: boolean): void }) {
  const sentId = useRef("");
  const requests: NonNullable<ActionProps<Opened>["requests"]> = (json, { key: name }, operationId) => {
    const key = { account: json.id, operation_id: operationId, name };
    return [[openAccount, json], ...(name === "none" ? [] : [[makeKey, key] as const])];
  };
  const open: ActionProps<Opened>["make"] = async (json, values, operationId) => {
    const { value: account, isNew } = await create<Account>(apiPath("accounts"), json).catch(
      (error: unknown) => {
        if (error instanceof ApiError && (error.status === 0 || error.status >= 500)) {
          sentId.current = String(json.id);
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
    const [, key] = requests(json, values, operationId);
    return key === undefined ? account : { ...account, made: await run<NewKey>(...key) };
  };
  return (
    <LoadedDialog
      title={openAccount.title}
      of="choices"
      load={async (signal) => ({
        plans: (await get<Page<Plan>>("/admin/plans", { limit: 500 }, signal)).data,
        overview: await get<Overview>("/admin/overview", {}, signal),
      })}
      close={close}
    >
      {({ plans, overview }) => {
        const offered = plans.filter((plan) => plan.offered).map(({ id }) => [id, id] as const);
        return (
          <ActionDialog<Opened>
            action={openAccount}
            initial={{ plan: offered[0]?.[0] ?? "" }}
            inputs={(inputs) => [...withOptions(inputs, "plan", offered), keyInput]}
            make={open}
            requests={requests}
            result={({ made, ...account }) =>
              made && <HandOver account={account} made={made} overview={overview} />
            }
            close={(isDone) => {
              close();
              if (isDone) go(pathTo("accounts", sentId.current));
            }}
          />
        );
      }}
    </LoadedDialog>
  );
}

/** An account with its first key. */
type Opened = Account & { made?: NewKey };

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
      <p class="above">
        Base URL: <code>{api}/v1</code>
      </p>
      <p class="actions">
        <Actions of={[...(made.key === null ? [] : [first]), ...(invitations === "none" ? [] : [invite])]} />
      </p>
    </>
  );
}
