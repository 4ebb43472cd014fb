/** The keys of an account with their limits and budgets. */

import { apiPath, get } from "../../shared/api.ts";
import { useAction } from "../../shared/form-dialog.tsx";
import { changeColumn, KeyBudget, keyCells } from "../../shared/key-values.tsx";
import { Empty, ShownList } from "../../shared/states.tsx";
import { columnsOf, Table } from "../../shared/table.tsx";
import type { Key, Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import type { AccountTabProps } from "./account-tab.ts";
import { ChangeKey, CreateKey, RevokeKey, RotateKey } from "./key-actions.tsx";

const keysMax = 500;

export function AccountKeys({ account }: AccountTabProps) {
  const keys = useLoaded(`keys ${account.id}`, (signal) =>
    get<Page<Key>>(apiPath("accounts", account.id, "keys"), { limit: keysMax }, signal),
  );
  const { open, show, close } = useAction<string>(keys.reload);
  const [action, id] = open?.split(" ") ?? [];
  const chosen = keys.value?.data.find((key) => key.id === id);
  return (
    <>
      {account.state !== "closed" && (
        <p class="buttons above">
          <button type="button" class="primary" onClick={() => show("create")}>
            Create a key
          </button>
        </p>
      )}
      <ShownList
        of={keys}
        empty={<Empty>This account has no key yet. Create one, and give its secret to the client.</Empty>}
      >
        {({ data, next }) => (
          <>
            <Table
              caption="Keys of the account"
              rows={data}
              columns={[
                ...columnsOf(
                  "key",
                  "name last_four revoked_at portal budget limits models expires_at last_used_at",
                  {
                    ...keyCells,
                    portal: ({ portal, acts_for }: Key) =>
                      acts_for !== null
                        ? `front end ${acts_for.name}`
                        : portal === "own"
                          ? "sees itself"
                          : "manages all keys",
                    budget: (key: Key) => <KeyBudget of={key} period={(every) => ` (${every}), refreshes`} />,
                  },
                ),
                changeColumn({
                  actions: ["Edit", "Rotate", "Revoke"],
                  nameOf: (key) => key.name ?? key.last_four,
                  show,
                }),
              ]}
            />
            {next !== null && (
              <p class="quiet">The first {keysMax} keys are shown. The operator API lists all of them.</p>
            )}
          </>
        )}
      </ShownList>
      {action === "create" && <CreateKey account={account.id} close={close} />}
      {chosen && action === "edit" && <ChangeKey of={chosen} close={close} />}
      {chosen && action === "rotate" && <RotateKey of={chosen} close={close} />}
      {chosen && action === "revoke" && <RevokeKey of={chosen} close={close} />}
    </>
  );
}
