/** The pages of the console, and what its sign-in says. */
import type { Arrival } from "../shared/api.ts";
import type { Joining } from "../shared/arrival.ts";
import { commandLine } from "../shared/paths.ts";
import { Link, type Place, pathTo } from "../shared/router.tsx";
import type { SignInWords } from "../shared/sign-in.tsx";
import { MissingPage, WebApp } from "../shared/web-app.tsx";
import { AccountPage } from "./pages/account.tsx";
import { AccountsPage } from "./pages/accounts.tsx";
import { EventsPage } from "./pages/events.tsx";
import { HealthPage } from "./pages/health.tsx";
import { LinkPage, LinksPage } from "./pages/links.tsx";
import { OperatorsPage } from "./pages/operators.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { PeoplePage } from "./pages/people.tsx";
import { PlansPage } from "./pages/plans.tsx";
import { RequestPage } from "./pages/request.tsx";
import { UsagePage } from "./pages/usage.tsx";
import { Search } from "./search.tsx";

const sections = [
  ["", "Overview"],
  ["usage", "Usage"],
  ["accounts", "Accounts", "Holders"],
  ["people", "People"],
  ["links", "Links"],
  ["plans", "Plans", "Offer"],
  ["health", "Health", "Service"],
  ["events", "Events"],
  ["operators", "Operators"],
] as const;

const words: SignInWords = {
  title: "Inkwell console",
  secret: "token",
  label: "Operator token",
  missing: "Enter the operator token.",
  hint: (
    <>
      The token is <code>INKWELL_OPERATOR_TOKEN</code>, or the content of the file <code>operator-token</code>{" "}
      in the data folder. <code>{commandLine} console</code> prints a link that signs you in.
    </>
  ),
};

export function Console({ arrival }: { arrival: Arrival | Joining | null }) {
  const search = <Search sections={sections} />;
  return <WebApp words={words} sections={sections} arrival={arrival} Page={CurrentPage} search={search} />;
}

function CurrentPage({ place }: { place: Place }) {
  const [section, id, tab] = place.parts;
  if (section === "accounts" && id === undefined) return <AccountsPage place={place} />;
  if (section === "accounts" && id !== undefined) {
    return <AccountPage key={id} id={id} tab={tab ?? "overview"} place={place} />;
  }
  if (section === "requests" && id !== undefined) return <RequestPage key={id} id={id} />;
  if (section === "people" && id === undefined) return <PeoplePage place={place} />;
  if (section === "links" && id === undefined) return <LinksPage place={place} />;
  if (section === "links" && id !== undefined) return <LinkPage key={id} id={id} />;
  if (section === undefined) return <OverviewPage />;
  if (section === "plans" && id === undefined) return <PlansPage />;
  if (section === "usage" && id === undefined) return <UsagePage place={place} />;
  if (section === "operators" && id === undefined) return <OperatorsPage place={place} />;
  if (section === "events" && id === undefined) return <EventsPage place={place} />;
  if (section === "health" && id === undefined) return <HealthPage />;
  return (
    <MissingPage>
      <Link to={pathTo("accounts")}>Go to the accounts</Link>
    </MissingPage>
  );
}
