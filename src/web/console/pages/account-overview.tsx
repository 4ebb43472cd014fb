/** The balance of an account with its windows as a picture, and who it belongs to. */

import { mailNames } from "../../../actions/accounts.ts";
import { apiPath, get } from "../../shared/api.ts";
import { BalancePicture } from "../../shared/balance.tsx";
import { CapPictures } from "../../shared/key-values.tsx";
import { Card } from "../../shared/layout.tsx";
import { LiveMark, ShownLive, useLive } from "../../shared/live.tsx";
import { Link, pathTo } from "../../shared/router.tsx";
import { columnsOf, factsOf, ShownTable } from "../../shared/table.tsx";
import type { Page } from "../../shared/types.ts";
import { useList, useLoaded } from "../../shared/use-loaded.ts";
import { Badge, Facts, Time } from "../../shared/values.tsx";
import type { AccountLive, Change, Person, RecentRefusal } from "../types.ts";
import type { AccountTabProps } from "./account-tab.ts";
import { personCells } from "./people.tsx";
import { RunningRequests } from "./running-requests.tsx";

const mailColumns = columnsOf(
  "account",
  "balance_low_mail balance_cap_mail balance_exhausted_mail key_expiring_mail",
);

export function AccountOverview({ account, changes }: AccountTabProps) {
  const { id } = account;
  const path = apiPath("accounts", id, "live");
  const live = useLive<AccountLive>(path, ({ running }) => running > 0, changes);
  const now = live.value;
  const hasMailOff = mailNames.some((name) => account[name] === "off");
  return (
    <div class="detail">
      <Card title="Balance" actions={<LiveMark of={live} />}>
        <ShownLive of={live}>
          {({ balance, refills, held_micro, spending_caps: caps }) => (
            <>
              <BalancePicture balance={balance} refills={refills} heldMicro={held_micro} />
              <CapPictures of={caps} owner="the account" />
            </>
          )}
        </ShownLive>
      </Card>
      <div>
        <Card title="Account">
          <Facts
            rows={factsOf(account, [
              ...columnsOf("account", "plan next_plan ends_at created_at email external_id note"),
              ...(hasMailOff ? mailColumns : []),
            ])}
          />
        </Card>
        <People account={id} changes={changes} />
      </div>
      <div>
        {now && <RunningRequests rows={now.requests} total={now.running} hasAccount={false} />}
        <Refusals account={id} />
      </div>
    </div>
  );
}

/** Nothing is shown of an account that only has keys. */
function People({ account, changes }: { account: string; changes: number }) {
  const people = useLoaded(`people of ${account} ${changes}`, async (signal) => {
    const [{ data }, invitations] = await Promise.all([
      get<Page<Person>>(apiPath("people"), { account, limit: 20 }, signal),
      get<Page<Change>>(apiPath("log"), { account, kind: "invitation", limit: 1 }, signal),
    ]);
    return { data, invitation: pendingIn(invitations.data, data) };
  });
  if (people.error === null && people.value === null) return <p class="loading" />;
  const { data = [], invitation = null } = people.value ?? {};
  if (people.error === null && data.length === 0 && invitation === null) return null;
  return (
    <Card
      title="People"
      actions={<Link to={`${pathTo("people")}?${new URLSearchParams({ account })}`}>Change them</Link>}
    >
      {invitation && (
        <p class="above">
          <Badge text="invited" /> A link was made <Time at={invitation.at} />, and nobody has used it yet. It
          works until <Time at={invitation.endsAt} /> at the latest.
        </p>
      )}
      <ShownTable
        of={people}
        empty={<p class="quiet">Nobody has the account yet.</p>}
        caption="People who have the account"
        columns={columnsOf("person", "name email role seen_at suspended_at", personCells)}
      />
    </Card>
  );
}

/** Returns the latest link, if it can still be used. A person who uses one is seen then. */
function pendingIn([last]: readonly Change[], people: readonly Person[]) {
  const endsAt = last?.after?.expires_at;
  if (last === undefined || typeof endsAt !== "string" || Date.parse(endsAt) <= Date.now()) return null;
  const isUsed = people.some(({ issuer, seen_at: seenAt }) => issuer === "invitation" && seenAt >= last.at);
  return isUsed ? null : { at: last.at, endsAt };
}

/** Answers "why does my request fail?". */
function Refusals({ account }: { account: string }) {
  const refusals = useList<RecentRefusal>(apiPath("accounts", account, "refusals"), { limit: 20 });
  return (
    <Card title="Latest refused requests">
      <ShownTable
        of={refusals}
        empty={<p class="quiet">This node has refused no request of the account since its start.</p>}
        caption="Latest refused requests of the account on this node"
        columns={[
          { title: "Time", cell: (row) => <Time at={row.at} /> },
          { title: "Error", cell: (row) => <Badge text={row.code} tone="warn" /> },
          ...columnsOf("request", "model request_id key"),
        ]}
      />
    </Card>
  );
}
