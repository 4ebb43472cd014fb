/** The list of accounts: search, filters and pages are in the path, so a list can be shared. */

import { accountFilters } from "../../../actions/accounts.ts";
import { wholeNumber } from "../../shared/numbers.ts";
import { ResourceList } from "../../shared/resource-page.tsx";
import { Link, type Place, pathTo } from "../../shared/router.tsx";
import { columnsOf } from "../../shared/table.tsx";
import { Badge } from "../../shared/values.tsx";
import { AccountLink } from "../account-link.tsx";
import { Dots } from "../dots.tsx";
import type { ListedAccount } from "../types.ts";
import { importFile, manyAccounts } from "./accounts-many.tsx";
import { opening } from "./open-account.tsx";

const columns = columnsOf(
  "account",
  "id balance.balances.total.credits balance.balances.additional.credits plan state created_at",
  {
    id: ({ id, owner, email }: ListedAccount) => (
      <>
        <AccountLink id={id} name={owner} />
        <span class="quiet">{[owner && id, email].filter(Boolean).join(" · ")}</span>
      </>
    ),
    "balance.balances.total.credits": ({ balance }: ListedAccount) =>
      balance === null ? <Badge text="needs repair" /> : wholeNumber(balance.balances.total.credits),
    state: ({ state, invitation, low_balance, balance }: ListedAccount) => (
      <>
        <Badge text={state} /> {invitation && <Badge text={invitation} />}{" "}
        {low_balance && <Badge text={balance?.balances.total.credits === 0 ? "used up" : "almost used up"} />}
      </>
    ),
  },
);

/** Of a class that was invited. */
function arrivals(rows: readonly ListedAccount[]) {
  const open = rows.filter(({ state }) => state !== "closed");
  const count = (state: string) => open.filter(({ invitation }) => invitation === state).length;
  const counts = [
    ["used", count("used"), "first request made"],
    ["joined", count("joined"), "joined"],
    ["waiting", count("invited"), "invited"],
    ["", count("lapsed"), "whose link has ended"],
  ] as const;
  return counts.some(([, number]) => number > 0) && <Dots counts={counts}>Of this page: </Dots>;
}

export function AccountsPage({ place }: { place: Place }) {
  const isFiltered = accountFilters.some(({ name }) => place.query.has(name));
  return (
    <ResourceList<ListedAccount>
      place={place}
      path="/admin/accounts"
      limit={50}
      filters={accountFilters}
      caption="Accounts"
      columns={columns}
      actions={[importFile, { ...opening, look: "primary" }]}
      many={manyAccounts}
      note={arrivals}
      keyOf={({ id }) => id}
      command="account create ada --plan starter"
      empty={
        isFiltered ? (
          <p>
            No account fits this search. <Link to={pathTo("accounts")}>Show all accounts</Link>
          </p>
        ) : (
          <p>There is no account yet. Open the first one, then create a key for it.</p>
        )
      }
      heading="Accounts"
    />
  );
}
