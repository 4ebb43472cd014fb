/**
 * The frame of all pages: sign-in, navigation, and the menu of the person.
 *
 * If the session ends while a page is open, the sign-in opens over the page. Nothing that was
 * typed is lost, and the data is loaded again afterwards.
 */

import { type ComponentChildren, type ComponentType, Fragment } from "preact";
import { useContext, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { roleTexts } from "../../actions/operator-keys.ts";
import { type Arrival, apiPath, presentSession, signOut, whenSignedOut } from "./api.ts";
import type { Joining } from "./arrival.ts";
import { Button, Who } from "./button.tsx";
import { Dialog } from "./form-dialog.tsx";
import { Brand, PageHead } from "./layout.tsx";
import { Menu } from "./menu.tsx";
import { commandLine } from "./paths.ts";
import { Link, type Place, pathTo, usePlace } from "./router.tsx";
import { SignIn, type SignInWords } from "./sign-in.tsx";
import { Failure } from "./states.tsx";
import { columnsOf, ShownTable } from "./table.tsx";
import { ThemeSwitch } from "./theme.tsx";
import { Toasts } from "./toasts.tsx";
import type { OwnSession, Session } from "./types.ts";
import { Session as SessionCount, useList } from "./use-loaded.ts";

type Leaving = "leaving" | "leaving-everywhere";
type SessionState = "unknown" | "signed-in" | Leaving | "signed-out" | "expired";

interface AppProps {
  words: SignInWords;
  /** First parts of paths with their titles. The first page has an empty path; a group begins with its name. */
  sections: readonly (readonly [path: string, title: string, group?: string])[];
  arrival: Arrival | Joining | null;
  Page: ComponentType<{ place: Place }>;
  /** In the bar. */
  search?: ComponentChildren;
}

export function WebApp({ words, sections, arrival: first, Page, search }: AppProps) {
  const [arrival, setArrival] = useState(first);
  const [state, setState] = useState<SessionState>("unknown");
  const [session, setSession] = useState(0);
  const [who, setWho] = useState<Session | null>(null);
  const shown = useRef(who);
  shown.current = who;
  const [error, setError] = useState<Error | null>(null);
  // After the pages are gone, so that they close their streams and not the service.
  useEffect(() => {
    if (state !== "leaving" && state !== "leaving-everywhere") return;
    signOut(state === "leaving-everywhere").then(
      () => setState("signed-out"),
      (failure: Error) => {
        setState("unknown");
        setError(failure);
      },
    );
  }, [state]);
  const look = () => {
    setError(null);
    presentSession().then((found) => {
      setWho(found);
      // The session may end, or somebody sign out, before this answer arrives.
      setState((now) => (now !== "unknown" ? now : found !== null ? "signed-in" : "signed-out"));
    }, setError);
  };
  useEffect(() => {
    whenSignedOut(() => setState((now) => (now === "signed-in" ? "expired" : now)));
    // A page that Back shows as it was can have data of an earlier session.
    addEventListener("pageshow", ({ persisted }) => {
      if (persisted && shown.current !== null) location.reload();
    });
    // Whoever has joined before is in their own account again.
    if (arrival === null || "joinBy" in arrival) look();
    else setState("signed-out");
  }, []);
  const signedIn = () => {
    // It is used up, and nothing for whoever signs in after a sign-out.
    setArrival(null);
    setState("signed-in");
    setSession((count) => count + 1);
    look();
  };
  if (error !== null) {
    return (
      <main class="sign-in">
        <Failure error={error} retry={look} />
      </main>
    );
  }
  if (state === "unknown" || state === "leaving" || state === "leaving-everywhere") return null;
  if (state === "signed-out") return <SignIn words={words} arrival={arrival} done={signedIn} />;
  return (
    <SessionCount.Provider value={session}>
      <Who.Provider value={who}>
        <Frame words={words} sections={sections} Page={Page} search={search} leave={setState} />
      </Who.Provider>
      {state === "expired" && <SignIn words={words} arrival={null} isOverPage done={signedIn} />}
      <Toasts />
    </SessionCount.Provider>
  );
}

type FrameProps = Omit<AppProps, "arrival"> & { leave(how: Leaving): void };

function Frame({ words, sections, Page, search, leave }: FrameProps) {
  const place = usePlace();
  const section = place.parts[0] ?? "";
  // The tabs of an account are one page.
  const opened = place.parts.slice(0, 2).join("/");
  const before = useRef(opened);
  const [isMenuOpen, setMenuOpen] = useState(false);
  const [isSessionsOpen, setSessionsOpen] = useState(false);
  // Keyboards and screen readers go on at the new page. Later, this would take the focus from a
  // field in which somebody types already.
  useLayoutEffect(() => {
    if (before.current === opened) return;
    before.current = opened;
    setMenuOpen(false);
    document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
  }, [opened]);
  return (
    <div class="frame">
      <a class="hidden" href="#content">
        Skip to the content
      </a>
      <header class="top">
        <Brand />
        {search}
        <Button
          class="toggle"
          aria-expanded={isMenuOpen}
          aria-controls="sections"
          onClick={() => setMenuOpen(!isMenuOpen)}
        >
          Menu
        </Button>
        <div id="sections" class={isMenuOpen ? "sections open" : "sections"}>
          <nav aria-label="Sections">
            {sections.map(([name, title, group]) => (
              <Fragment key={name}>
                {group && <p>{group}</p>}
                <Link to={name === "" ? pathTo() : pathTo(name)} current={name === section}>
                  {title}
                </Link>
              </Fragment>
            ))}
            {commandLine !== "" && <a href="/docs/">Documentation</a>}
          </nav>
        </div>
        <Menu class="who" title={<Person secret={words.label} />}>
          <Rights />
          <ThemeSwitch />
          <Button onClick={() => setSessionsOpen(true)}>Your sessions</Button>
          <Button onClick={() => leave("leaving")}>Sign out</Button>
        </Menu>
      </header>
      <main id="content" tabIndex={-1}>
        <Page place={place} />
      </main>
      {isSessionsOpen && (
        <Dialog title="Your sessions" cancel={() => setSessionsOpen(false)}>
          <SessionList />
          <div class="buttons">
            <Button class="danger" onClick={() => leave("leaving-everywhere")}>
              End all sessions
            </Button>
            <Button onClick={() => setSessionsOpen(false)}>Close</Button>
          </div>
        </Dialog>
      )}
    </div>
  );
}

/** Who is signed in, and as what. The session of a key has no role. `secret`: what stands for a name. */
function Person({ secret }: { secret: string }) {
  const { person = null, role = null } = useContext(Who) ?? {};
  return (
    <>
      <span>{person?.name ?? person?.email ?? person?.id ?? secret}</span>
      {role && <span class="quiet">{role}</span>}
    </>
  );
}

/** Names are not unique, and anybody can choose them: the id is what tells people apart. */
function Rights() {
  const { person = null, role = null } = useContext(Who) ?? {};
  return (
    <>
      {person && <p>{[person.name, person.email, person.id].filter((part) => part !== null).join(", ")}</p>}
      {role && (
        <p class="quiet">
          Your role is {role}. {roleTexts[role]}
        </p>
      )}
    </>
  );
}

/** The sessions of whoever is signed in, loaded when they are looked at. */
function SessionList() {
  const loaded = useList<OwnSession>(apiPath("sessions"), {});
  return (
    <ShownTable
      of={loaded}
      caption="Your sessions"
      columns={columnsOf("session", "created_at used_at expires_at present", {
        present: ({ present }: OwnSession) => (present ? "yes" : ""),
      })}
    />
  );
}

/** For a path that no page has. `children` is a link to a page. */
export function MissingPage({ children }: { children: ComponentChildren }) {
  return (
    <>
      <PageHead title="This page does not exist" />
      <p>The address may be mistyped. {children}.</p>
    </>
  );
}
