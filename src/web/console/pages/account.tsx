/** One account: its head with the changes of the account itself, and a tab for each topic. */
import type { ComponentType } from "preact";
import { useState } from "preact/hooks";
import { ApiError, apiPath } from "../../shared/api.ts";
import { PageHead } from "../../shared/layout.tsx";
import { Link, type Place, pathTo } from "../../shared/router.tsx";
import { Empty, Shown } from "../../shared/states.tsx";
import { UsageOfPeriod } from "../../shared/usage-report.tsx";
import { useGet } from "../../shared/use-loaded.ts";
import { Id } from "../../shared/values.tsx";
import type { Account } from "../types.ts";
import { AccountActions } from "./account-actions.tsx";
import { AccountJournal } from "./account-journal.tsx";
import { AccountKeys } from "./account-keys.tsx";
import { AccountOverview } from "./account-overview.tsx";
import { AccountReceipts } from "./account-receipts.tsx";
import type { AccountTabProps } from "./account-tab.ts";

const tabs: Readonly<Record<string, { title: string; Tab: ComponentType<AccountTabProps> }>> = {
  overview: { title: "Overview", Tab: AccountOverview },
  keys: { title: "Keys", Tab: AccountKeys },
  usage: { title: "Usage", Tab: AccountUsage },
  receipts: { title: "Receipts", Tab: AccountReceipts },
  journal: { title: "Journal", Tab: AccountJournal },
};

export function AccountPage({ id, tab, place }: { id: string; tab: string; place: Place }) {
  const account = useGet<Account>(apiPath("accounts", id));
  const [changes, setChanges] = useState(0);
  const reload = () => {
    account.reload();
    setChanges(changes + 1);
  };
  const { error } = account;
  // 400: no account can have this id.
  if (account.value === null && error instanceof ApiError && [400, 404].includes(error.status)) {
    return <MissingAccount id={id} />;
  }
  const current = tabs[tab];
  const state = account.value?.state;
  return (
    <>
      <PageHead
        title={account.value?.owner ?? id}
        above={<Link to={pathTo("accounts")}>Accounts</Link>}
        below={<Id of={id} />}
      >
        {account.value && <AccountActions account={account.value} reload={reload} />}
      </PageHead>
      {state !== undefined && state !== "active" && (
        <p class="notice warn">
          This account is {state}.{" "}
          {state === "suspended"
            ? "Its requests are refused until you resume it."
            : "Its additional credits can still be refunded."}
        </p>
      )}
      <nav class="tabs" aria-label="Topics of the account">
        {Object.entries(tabs).map(([name, { title }]) => (
          <Link
            key={name}
            to={name === "overview" ? pathTo("accounts", id) : pathTo("accounts", id, name)}
            current={name === tab}
          >
            {title}
          </Link>
        ))}
      </nav>
      {current === undefined ? (
        <p>
          This topic does not exist. <Link to={pathTo("accounts", id)}>Open the overview</Link>.
        </p>
      ) : (
        <Shown of={account}>{(row) => <current.Tab account={row} changes={changes} place={place} />}</Shown>
      )}
    </>
  );
}

function MissingAccount({ id }: { id: string }) {
  return (
    <>
      <PageHead title="This account does not exist" above={<Link to={pathTo("accounts")}>Accounts</Link>} />
      <Empty>
        There is no account <code>{id}</code>. Its id may be mistyped: accounts are never renamed or deleted.{" "}
        <Link to={`${pathTo("accounts")}?${new URLSearchParams({ search: id })}`}>Search for “{id}”</Link>
      </Empty>
    </>
  );
}

/** By day, model and key. */
function AccountUsage({ account: { id }, place }: AccountTabProps) {
  return (
    <UsageOfPeriod place={place} path="/admin/usage/sums" account={id} groups={["day", "model", "key"]} />
  );
}
