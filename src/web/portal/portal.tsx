/** The pages of the portal, and what its sign-in says. */
import { useEffect, useRef } from "preact/hooks";
import { type Arrival, apiPath } from "../shared/api.ts";
import type { Joining } from "../shared/arrival.ts";
import { PageHead } from "../shared/layout.tsx";
import { Link, type Place, pathTo } from "../shared/router.tsx";
import type { SignInWords } from "../shared/sign-in.tsx";
import { Shown } from "../shared/states.tsx";
import { useGet } from "../shared/use-loaded.ts";
import { MissingPage, WebApp } from "../shared/web-app.tsx";
import { ChatPage } from "./pages/chat.tsx";
import { HomePage } from "./pages/home.tsx";
import { KeysPage } from "./pages/keys.tsx";
import { ModelsPage } from "./pages/models.tsx";
import { RequestsPage } from "./pages/requests.tsx";
import { StartPage } from "./pages/start.tsx";
import { UsagePage } from "./pages/usage.tsx";
import type { OwnAccount } from "./types.ts";

const sections = [
  ["", "Home"],
  ["requests", "Requests"],
  ["usage", "Usage"],
  ["keys", "Keys"],
  ["models", "Models"],
  ["start", "Start"],
  ["chat", "Chat"],
] as const;

const words: SignInWords = {
  title: "Inkwell",
  secret: "key",
  label: "API key",
  missing: "Enter an API key.",
  hint: (
    <>
      A key begins with <code>ink_</code>. You get one from the operator of this service, or from a colleague
      who can create keys. The key signs you in, and this browser does not keep it.
    </>
  ),
};

export function Portal({ arrival }: { arrival: Arrival | Joining | null }) {
  return <WebApp words={words} sections={sections} arrival={arrival} Page={CurrentPage} />;
}

function CurrentPage({ place }: { place: Place }) {
  const account = useGet<OwnAccount>(apiPath("account"));
  // Another page of the portal begins with the present state of the account and its rights.
  const [section] = place.parts;
  const before = useRef(section);
  useEffect(() => {
    if (before.current !== section) account.reload();
    before.current = section;
  }, [section]);
  return (
    <>
      {account.value === null && <PageHead title="Inkwell" />}
      <Shown of={account}>
        {/* Another key or person that signs in later sees nothing of the pages before. */}
        {(own) => (
          <OwnPage key={`${own.account} ${own.key?.id}`} own={own} place={place} changed={account.reload} />
        )}
      </Shown>
    </>
  );
}

function OwnPage({ own, place, changed }: { own: OwnAccount; place: Place; changed(): void }) {
  const [section, more] = place.parts;
  if (section === undefined) return <HomePage own={own} />;
  if (more === undefined) {
    if (section === "requests") return <RequestsPage place={place} />;
    if (section === "usage") return <UsagePage place={place} />;
    if (section === "keys") return <KeysPage own={own} changed={changed} />;
    if (section === "models") return <ModelsPage />;
    if (section === "start") return <StartPage own={own} />;
    if (section === "chat") return <ChatPage own={own} />;
  }
  return (
    <MissingPage>
      <Link to={pathTo()}>Go to Home</Link>
    </MissingPage>
  );
}
