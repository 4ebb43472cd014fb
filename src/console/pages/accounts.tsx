/** The list of accounts: search, filters and pages are in the path, so a list can be shared. */
import { useState } from "preact/hooks";
import { adminPath, get, send } from "../api.ts";
import { ActionDialog, useAction } from "../parts/action.tsx";
import { PageHead } from "../parts/layout.tsx";
import { Empty, Shown } from "../parts/states.tsx";
import { Pager, Table } from "../parts/table.tsx";
import { Badge, Time } from "../parts/values.tsx";
import { go, Link, type Place, pathTo, withParameters } from "../router.tsx";
import type { Account, Page, Plan } from "../types.ts";
import { useLoaded } from "../use-loaded.ts";

const rowsMax = 50;

export function AccountsPage({ place }: { place: Place }) {
  const { open, show, hide } = useAction<"open">();
  const search = place.query.get("search") ?? "";
  const after = place.query.get("after");
  const accounts = useLoaded(`accounts ${search} ${after}`, (signal) =>
    get<Page<Account>>("/admin/accounts", { search, after, limit: rowsMax }, signal),
  );
  return (
    <>
      <PageHead title="Accounts">
        <button type="button" class="primary" onClick={() => show("open")}>
          Open an account
        </button>
      </PageHead>
      <Search key={search} search={search} />
      <Shown of={accounts}>
        {({ data, next }) =>
          data.length === 0 ? (
            <Empty>
              {search === "" ? (
                <p>There is no account yet. Open the first one, then create a key for it.</p>
              ) : (
                <p>
                  No account has “{search}” in its owner or e-mail.{" "}
                  <Link to={pathTo("accounts")}>Show all accounts</Link>, or open{" "}
                  <Link to={pathTo("accounts", search)}>the account with this id</Link>.
                </p>
              )}
            </Empty>
          ) : (
            <>
              <Table
                caption="Accounts"
                rows={data}
                keyOf={({ id }) => id}
                columns={[
                  { title: "Account", cell: ({ id }) => <Link to={pathTo("accounts", id)}>{id}</Link> },
                  { title: "Owner", cell: ({ owner }) => owner ?? <span class="quiet">–</span> },
                  { title: "E-mail", cell: ({ email }) => email ?? <span class="quiet">–</span> },
                  { title: "Plan", cell: ({ plan }) => plan },
                  { title: "State", cell: ({ state }) => <Badge text={state} /> },
                  { title: "Opened", cell: ({ created_at }) => <Time at={created_at} /> },
                ]}
              />
              <Pager next={next} isFirst={after === null} />
            </>
          )
        }
      </Shown>
      {open === "open" && <OpenAccount close={hide} />}
    </>
  );
}

function Search({ search }: { search: string }) {
  const [text, setText] = useState(search);
  return (
    <search>
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          go(withParameters({ search: text.trim(), after: null }));
        }}
      >
        <label class="grow" for="search">
          <span class="hidden">Search in owner and e-mail</span>
          <input
            id="search"
            type="search"
            placeholder="Owner or e-mail"
            value={text}
            onInput={({ currentTarget }) => setText(currentTarget.value)}
          />
        </label>
        <button type="submit">Search</button>
      </form>
    </search>
  );
}

function OpenAccount({ close }: { close(): void }) {
  const plans = useLoaded("plans", (signal) => get<Page<Plan>>("/admin/plans", { limit: 500 }, signal));
  if (plans.value === null && plans.error === null) return null;
  const offered = (plans.value?.data ?? []).filter(({ offered }) => offered);
  return (
    <ActionDialog
      title="Open an account"
      kind="open"
      submit="Open the account"
      intro={<p>The account starts with full credits of its plan. Create keys for it afterwards.</p>}
      fields={[
        {
          name: "id",
          label: "Account",
          isRequired: true,
          hint: "Its permanent id: lower-case letters, digits, dots, dashes and underscores.",
        },
        {
          ...{ name: "plan", label: "Plan", kind: "select", isRequired: true },
          initial: offered[0]?.id ?? "",
          options: offered.map(({ id }) => [id, id]),
        },
        { name: "owner", label: "Owner" },
        { name: "email", label: "E-mail", kind: "email" },
        { name: "note", label: "Note" },
        { name: "external_id", label: "External id", hint: "The id of the account in another system." },
      ]}
      send={async (values) => {
        const filled = Object.entries(values).filter(([, value]) => value.trim() !== "");
        const account = await send<Account>("POST", adminPath("accounts"), Object.fromEntries(filled));
        go(pathTo("accounts", account.id));
        return { done: `The account ${account.id} is open.` };
      }}
      close={close}
    />
  );
}
