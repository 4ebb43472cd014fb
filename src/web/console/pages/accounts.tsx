/** The list of accounts: search, filters and pages are in the path, so a list can be shared. */

import { useRef, useState } from "preact/hooks";
import { openAccount } from "../../../actions/accounts.ts";
import { inputsOf, jsonIn, withOptions, withoutNulls } from "../../shared/action-fields.ts";
import { ApiError, apiPath, create, get } from "../../shared/api.ts";
import { FailedDialog, FormDialog, useAction } from "../../shared/form-dialog.tsx";
import { PageHead } from "../../shared/layout.tsx";
import { wholeNumber } from "../../shared/numbers.ts";
import { Options } from "../../shared/options.tsx";
import { go, Link, type Place, pathTo, withParameters } from "../../shared/router.tsx";
import { Empty, ShownList } from "../../shared/states.tsx";
import { columnsOf, Pager, Table } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { useLoaded } from "../../shared/use-loaded.ts";
import { Badge } from "../../shared/values.tsx";
import { AccountLink } from "../account-link.tsx";
import type { Account, ListedAccount, Plan } from "../types.ts";
import { LookUpKey } from "./key-lookup.tsx";

const rowsMax = 50;

const filters = {
  state: [
    ["", "any state"],
    ["active", "active"],
    ["suspended", "suspended"],
    ["closed", "closed"],
  ],
  order: [
    ["", "by id"],
    ["remaining", "by credits left"],
    ["additional", "by additional credits"],
    ["created", "by opening"],
    ["plan", "by plan"],
  ],
  direction: [
    ["", "ascending"],
    ["desc", "descending"],
  ],
} as const;

export function AccountsPage({ place }: { place: Place }) {
  const { open, show, close } = useAction<"open" | "lookup">();
  const { query } = place;
  const after = query.get("after");
  const search = query.get("search") ?? "";
  const names = ["search", "state", "plan", "order", "direction", "low_balance"];
  const wanted = Object.fromEntries(names.map((name) => [name, query.get(name)]));
  const isFiltered = names.some((name) => query.has(name));
  const accounts = useLoaded(`accounts ${query}`, (signal) =>
    get<Page<ListedAccount>>("/admin/accounts", { ...wanted, after, limit: rowsMax }, signal),
  );
  return (
    <>
      <PageHead title="Accounts">
        <button type="button" onClick={() => show("lookup")}>
          Find a key
        </button>
        <button type="button" class="primary" onClick={() => show("open")}>
          Open an account
        </button>
      </PageHead>
      <Search key={search} search={search} />
      <Filters query={query} />
      <ShownList
        of={accounts}
        empty={
          <Empty>
            {isFiltered ? (
              <p>
                No account fits this search. <Link to={pathTo("accounts")}>Show all accounts</Link>
              </p>
            ) : (
              <p>There is no account yet. Open the first one, then create a key for it.</p>
            )}
          </Empty>
        }
      >
        {({ data, next }) => (
          <>
            <Accounts rows={data} />
            <Pager next={next} isFirst={after === null} />
          </>
        )}
      </ShownList>
      {open === "open" && <OpenAccount close={close} />}
      {open === "lookup" && <LookUpKey close={close} />}
    </>
  );
}

function Accounts({ rows }: { rows: readonly ListedAccount[] }) {
  const credits = (row: ListedAccount) =>
    row.balance === null ? (
      <Badge text="needs repair" tone="bad" />
    ) : (
      wholeNumber(row.balance.balances.total.credits)
    );
  return (
    <Table
      caption="Accounts"
      rows={rows}
      columns={columnsOf(
        "account",
        "id balance.balances.total.credits balance.balances.additional.credits plan state created_at",
        {
          id: AccountCell,
          "balance.balances.total.credits": credits,
          state: ({ state, low_balance }: ListedAccount) => (
            <>
              <Badge text={state} /> {low_balance && <Badge text="almost used up" tone="warn" />}
            </>
          ),
        },
      )}
    />
  );
}

function AccountCell({ id, owner, email }: ListedAccount) {
  return (
    <>
      <AccountLink id={id} />
      {owner} <span class="quiet">{email}</span>
    </>
  );
}

function Filters({ query }: { query: URLSearchParams }) {
  const set = (name: string, value: string) => go(withParameters({ [name]: value, after: null }));
  return (
    <div class="filters">
      {Object.entries(filters).map(([name, options]) => (
        <label key={name} for={name}>
          <span class="hidden">{name}</span>
          <select
            id={name}
            value={query.get(name) ?? ""}
            onChange={({ currentTarget }) => set(name, currentTarget.value)}
          >
            <Options of={options} />
          </select>
        </label>
      ))}
      <label for="near">
        <input
          id="near"
          type="checkbox"
          checked={query.get("low_balance") === "true"}
          onChange={({ currentTarget }) => set("low_balance", currentTarget.checked ? "true" : "")}
        />
        almost used up
      </label>
      {query.get("plan") !== null && (
        <button type="button" onClick={() => set("plan", "")}>
          plan: {query.get("plan")} ✕
        </button>
      )}
    </div>
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
          <span class="hidden">Search for an id, e-mail, external id or owner</span>
          <input
            id="search"
            type="search"
            placeholder="Id, e-mail, external id or owner"
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
  const lostResponse = useRef(false);
  const plans = useLoaded("plans", (signal) => get<Page<Plan>>("/admin/plans", { limit: 500 }, signal));
  if (plans.value === null) {
    const failed = { title: "Open an account", retry: plans.reload, close };
    return plans.error && <FailedDialog {...failed} error={plans.error} />;
  }
  const offered = plans.value.data.filter(({ offered }) => offered).map(({ id }) => [id, id] as const);
  const { form, input } = openAccount;
  const inputs = withOptions(inputsOf(input, { plan: offered[0]?.[0] }), "plan", offered);
  return (
    <FormDialog
      title={form?.title ?? ""}
      kind="open"
      submit={form?.submit ?? ""}
      intro={<p>{form?.intro}</p>}
      fields={inputs}
      send={async (values) => {
        const body = withoutNulls(jsonIn(input, values));
        const { value: account, isNew } = await create<Account>(apiPath("accounts"), body).catch(
          (error: unknown) => {
            if (error instanceof ApiError && (error.status === 0 || error.status >= 500)) {
              lostResponse.current = true;
            }
            throw error;
          },
        );
        // The API treats it as a repetition. It is one only if this form has sent it before.
        if (!isNew && !lostResponse.current) {
          const message = `Account ${account.id} exists already. Nothing has changed. Choose another id.`;
          throw new ApiError(409, "account_exists", message, "id");
        }
        go(pathTo("accounts", account.id));
        return { done: openAccount.done?.(account) ?? "" };
      }}
      close={close}
    />
  );
}
