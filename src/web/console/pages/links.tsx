/** Links by which many people join: their list, and one with its seats and accounts. */
import { useState } from "preact/hooks";
import { closeLinkAccounts, createLink, endLink, rotateLink, setLink } from "../../../actions/links.ts";
import { apiPath } from "../../shared/api.ts";
import { Card, PageHead } from "../../shared/layout.tsx";
import { LiveMark, ShownLive, useLive } from "../../shared/live.tsx";
import { counted } from "../../shared/numbers.ts";
import { commandLine } from "../../shared/paths.ts";
import { Actions, type ListAction, ResourceList } from "../../shared/resource-page.tsx";
import { Link, type Place, pathTo } from "../../shared/router.tsx";
import { Secret } from "../../shared/secret.tsx";
import { Empty } from "../../shared/states.tsx";
import { columnsOf, Table } from "../../shared/table.tsx";
import { Badge, Time } from "../../shared/values.tsx";
import { accountCell } from "../account-link.tsx";
import { Dots } from "../dots.tsx";
import type { JoinLink, LinkAccount, LinkPageJson } from "../types.ts";

const accountsMax = 500;

const secretOf = ({ link = null }: { link?: string | null }) => (
  <Secret secret={link} of="link" lost="Make a new link on its page." />
);

const make: ListAction = {
  title: "Make a link",
  action: createLink,
  look: "primary",
  parts: { result: secretOf },
};

export function LinksPage({ place }: { place: Place }) {
  return (
    <ResourceList<JoinLink>
      place={place}
      path={apiPath("links")}
      limit={100}
      caption="Links, newest first"
      columns={columnsOf("link", "name plan state taken seats ends_at", {
        name: ({ id, name }: JoinLink) => <Link to={pathTo("links", id)}>{name}</Link>,
      })}
      actions={[make]}
      empty="There is no link. With one, each person of a class opens an account of their own."
      heading="Links"
      card="Links by which many people join"
    />
  );
}

const accountColumns = columnsOf("linkAccount", "name account joined_at state used", {
  account: accountCell,
  used: ({ used }: LinkAccount) => (used ? "yes" : "not yet"),
});

/** A class joins while somebody looks: the page asks again and again. */
export function LinkPage({ id }: { id: string }) {
  const [changes, setChanges] = useState(0);
  const isBusy = ({ link }: LinkPageJson) => link.state === "open" && link.taken > 0;
  const live = useLive<LinkPageJson>(`${apiPath("links", id)}?limit=${accountsMax}`, isBusy, changes);
  const { link } = live.value ?? {};
  return (
    <>
      <PageHead title={link?.name ?? "Link"} above={<Link to={pathTo("links")}>Links</Link>}>
        {link !== undefined && <Actions of={actionsOf(link)} changed={() => setChanges(changes + 1)} />}
      </PageHead>
      <ShownLive of={live}>
        {({ data, next, link: shown, seats }) => (
          <>
            <Card title="Seats" actions={<LiveMark of={live} />}>
              <Seats link={shown} seats={seats} />
            </Card>
            <Card title="Accounts">
              {data.length > 0 && (
                <p class="quiet above">People have typed the names themselves. Nobody has confirmed them.</p>
              )}
              <Table
                caption="Accounts of the link"
                rows={data}
                columns={accountColumns}
                keyOf={({ account }) => account}
                empty={<Empty>Nobody has joined yet.</Empty>}
              />
              {next !== null && (
                <p>
                  There are more. <code>{`${commandLine} link show ${id}`}</code> lists all.
                </p>
              )}
            </Card>
          </>
        )}
      </ShownLive>
    </>
  );
}

function Seats({ link, seats: { waiting, joined, used } }: Pick<LinkPageJson, "link" | "seats">) {
  const { seats, taken, plan, state, domain, ends_at: endsAt, ended_at: endedAt } = link;
  const { accounts_end_at: accountsEndAt } = link;
  const shownWaiting = Math.min(waiting, seats - taken);
  const counts = [
    ["used", used, "first request made"],
    ["joined", joined - used, "joined"],
    ["waiting", shownWaiting, "waiting for their mails"],
    ["free", seats - taken - shownWaiting, "free"],
  ] as const;
  return (
    <>
      <Dots counts={counts}>
        <strong>
          {taken} of {counted(seats, "seat")}
        </strong>{" "}
        taken:{" "}
      </Dots>
      <p class="quiet">
        <Badge text={state} /> Plan {plan}.{domain !== null && ` Addresses of ${domain} only.`} Joining{" "}
        {state === "ended" ? "ended" : "ends"} <Time at={endedAt ?? endsAt} />.
        {accountsEndAt !== null && (
          <>
            {" "}
            The accounts close <Time at={accountsEndAt} />.
          </>
        )}
      </p>
    </>
  );
}

/** A link that has ended has the last one only. */
function actionsOf(link: JoinLink): readonly ListAction[] {
  const parts = { target: { link: link.id }, subject: link.name };
  const all: readonly ListAction[] = [
    { title: "Change", action: setLink, parts: { ...parts, before: link } },
    { title: "New link", action: rotateLink, parts: { ...parts, result: secretOf } },
    { title: "End", action: endLink, parts },
    { title: "Close all accounts", action: closeLinkAccounts, parts, look: "danger" },
  ];
  return link.ended_at === null ? all : all.slice(-1);
}
