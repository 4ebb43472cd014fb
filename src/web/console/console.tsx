/**
 * The frame of all pages: sign-in, navigation, theme and log-out.
 *
 * If the session ends while a page is open, the sign-in opens over the page. Nothing that was
 * typed is lost, and the data is loaded again afterwards.
 */
import { useEffect, useState } from "preact/hooks";
import { isSignedIn, signOut, whenSignedOut } from "../shared/api.ts";
import { PageHead } from "../shared/layout.tsx";
import { Link, type Place, pathTo, usePlace } from "../shared/router.tsx";
import { Failure } from "../shared/states.tsx";
import { ThemeSwitch } from "../shared/theme.tsx";
import { Toasts } from "../shared/toasts.tsx";
import { Session } from "../shared/use-loaded.ts";
import { AccountPage } from "./pages/account.tsx";
import { AccountsPage } from "./pages/accounts.tsx";
import { HealthPage } from "./pages/health.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { PlansPage } from "./pages/plans.tsx";
import { SignIn } from "./pages/sign-in.tsx";
import { UsagePage } from "./pages/usage.tsx";

type SessionState = "unknown" | "signed-in" | "signed-out" | "expired";

const sections = [
  ["overview", "Overview"],
  ["accounts", "Accounts"],
  ["plans", "Plans"],
  ["usage", "Usage"],
  ["health", "Health"],
] as const;

export function Console({ code }: { code: string | null }) {
  const [state, setState] = useState<SessionState>("unknown");
  const [session, setSession] = useState(0);
  const [error, setError] = useState<Error | null>(null);
  const look = () => {
    setError(null);
    isSignedIn().then((isIn) => setState(isIn ? "signed-in" : "signed-out"), setError);
  };
  useEffect(() => {
    whenSignedOut(() => setState((now) => (now === "signed-in" ? "expired" : now)));
    if (code === null) look();
    else setState("signed-out");
  }, []);
  const signedIn = () => {
    setState("signed-in");
    setSession((count) => count + 1);
  };
  if (error !== null) {
    return (
      <main class="sign-in">
        <Failure error={error} retry={look} />
      </main>
    );
  }
  if (state === "unknown") return null;
  if (state === "signed-out") return <SignIn code={code} done={signedIn} />;
  return (
    <Session.Provider value={session}>
      <Frame leave={() => signOut().then(() => setState("signed-out"), setError)} />
      {state === "expired" && <SignIn code={null} isOverPage done={signedIn} />}
      <Toasts />
    </Session.Provider>
  );
}

function Frame({ leave }: { leave(): void }) {
  const place = usePlace();
  const section = place.parts[0] ?? "overview";
  return (
    <>
      <a class="hidden" href="#content">
        Skip to the content
      </a>
      <header class="top">
        <Link to={pathTo()} class="brand">
          Inkwell
        </Link>
        <nav aria-label="Sections">
          {sections.map(([name, title]) => (
            <Link key={name} to={name === "overview" ? pathTo() : pathTo(name)} current={name === section}>
              {title}
            </Link>
          ))}
        </nav>
        <ThemeSwitch />
        <button type="button" onClick={leave}>
          Log out
        </button>
      </header>
      <main id="content" tabIndex={-1}>
        <CurrentPage place={place} />
      </main>
    </>
  );
}

function CurrentPage({ place }: { place: Place }) {
  const [section, id, tab] = place.parts;
  if (section === "accounts" && id === undefined) return <AccountsPage place={place} />;
  if (section === "accounts" && id !== undefined) {
    return <AccountPage key={id} id={id} tab={tab ?? "overview"} place={place} />;
  }
  if (section === undefined) return <OverviewPage />;
  if (section === "plans" && id === undefined) return <PlansPage />;
  if (section === "usage" && id === undefined) return <UsagePage place={place} />;
  if (section === "health" && id === undefined) return <HealthPage />;
  return (
    <>
      <PageHead title="This page does not exist" />
      <p>
        The address may be mistyped. <Link to={pathTo("accounts")}>Go to the accounts</Link>.
      </p>
    </>
  );
}
