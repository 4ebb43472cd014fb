/** The keys of an account with their limits and budgets. */

import { apiPath, get } from "../../shared/api.ts";
import { useAction } from "../../shared/form-dialog.tsx";
import { KeyBudget, KeyState, lastKeyColumns, limitsOf } from "../../shared/key-values.tsx";
import { Empty, ShownList } from "../../shared/states.tsx";
import { Table } from "../../shared/table.tsx";
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
                { title: "Name", cell: (key) => key.name ?? <span class="quiet">unnamed</span> },
                { title: "Secret", cell: (key) => <code title={`id ${key.id}`}>…{key.last_four}</code> },
                { title: "State", cell: (key) => <KeyState of={key} /> },
                {
                  title: "In the portal",
                  cell: ({ portal }) => (portal === "own" ? "sees itself" : "manages all keys"),
                },
                {
                  title: "Budget",
                  cell: (key) => <KeyBudget of={key} period={(every) => ` (${every}), refreshes`} />,
                },
                { title: "Limits", cell: limitsOf },
                { title: "Models", cell: (key) => key.models.join(", ") },
                ...lastKeyColumns({
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
