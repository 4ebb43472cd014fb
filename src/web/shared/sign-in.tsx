/** Sign-in at an issuer, by a secret, by the one-time code of a link, or by an invitation. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, type Arrival, apiPath, presentSession, send, signIn, signInChoices } from "./api.ts";
import { type Joining, keepReturnPath } from "./arrival.ts";
import { AskForLink } from "./ask-for-link.tsx";
import { Button } from "./button.tsx";
import { Modal } from "./form-dialog.tsx";
import { JoinForm } from "./join.tsx";
import { Brand } from "./layout.tsx";
import { appTitle } from "./paths.ts";
import { Form, Input, Notes, useAttempt } from "./plain-form.tsx";
import { useLoaded } from "./use-loaded.ts";

export interface SignInWords {
  title: string;
  /** Name of the secret in the API, and of its field. */
  secret: "token" | "key";
  label: string;
  missing: string;
  hint: ComponentChildren;
}

interface SignInProps {
  words: SignInWords;
  /** Exchanged at once, apart from an invitation: mail scanners open links, and press no buttons. */
  arrival: Arrival | Joining | null;
  /** The session ended, or was too old for an action, while a page was open. */
  isOverPage?: boolean;
  done(): void;
}

export function SignIn({ words, arrival, isOverPage = false, done }: SignInProps) {
  const form =
    arrival !== null && "joinBy" in arrival ? (
      <JoinForm code={arrival.joinBy} done={done} />
    ) : (
      <SignInForm words={words} arrival={arrival} isOverPage={isOverPage} done={done} />
    );
  // Only a sign-in closes it.
  if (isOverPage) return <Modal heading="sign-in">{form}</Modal>;
  return (
    <main class="sign-in">
      <Brand />
      {form}
    </main>
  );
}

function SignInForm(props: Required<SignInProps> & { arrival: Arrival | null }) {
  const { words, arrival, isOverPage, done } = props;
  const { title, secret, label, missing, hint } = words;
  const [typed, setTyped] = useState("");
  const [isSecretWrong, setSecretWrong] = useState(false);
  const [invitation, setInvitation] = useState(invitationIn(arrival));
  const { isBusy, error, setError, attempt } = useAttempt(arrival !== null && invitation === null);
  const choices = useLoaded("sign-in", signInChoices);
  const enter = (credentials: Parameters<typeof signIn>[0]) =>
    attempt(async () => {
      try {
        await signIn(credentials);
      } catch (failure) {
        // A link that is opened again, such as from the history of the browser.
        const isAgain = arrival !== null && failure instanceof ApiError && failure.status === 401;
        if (!isAgain || (await presentSession().catch(() => null)) === null) {
          setInvitation(null);
          throw failure;
        }
      }
      done();
    });
  const visitIssuer = () =>
    attempt(async () => {
      setSecretWrong(false);
      const { url } = await send<{ url: string }>("POST", apiPath("sign-in"));
      // What was typed on the page stays: this tab waits for the other one.
      if (isOverPage) return void open(url, "_blank", "noopener");
      keepReturnPath();
      location.assign(url);
      // It is busy until the page is left, and begins again if Back shows it as it was.
      await new Promise(() => addEventListener("pageshow", () => location.reload()));
    });
  useEffect(() => {
    document.title = `Sign in · ${appTitle}`;
    if (arrival !== null && invitation === null) void enter(arrival);
    if (!isOverPage) return;
    const look = async () => {
      if ((await presentSession().catch(() => null)) !== null) done();
    };
    addEventListener("focus", look);
    return () => removeEventListener("focus", look);
  }, []);
  const issuer = choices.value?.issuer ?? null;
  const takesSecret = choices.value?.accepts_secret ?? false;
  if (invitation !== null) {
    return (
      <Form submit={() => !isBusy && void enter({ invitation })}>
        <h1 id="sign-in">You are invited</h1>
        <p>
          This link opens an account for you. It works once. Anyone who has the link is taken for you, so pass
          it on to nobody.
        </p>
        <button type="submit" class="primary" disabled={isBusy}>
          {isBusy ? "Please wait …" : "Open my account"}
        </button>
      </Form>
    );
  }
  return (
    <>
      <Form
        submit={() => {
          const text = typed.trim();
          if (text === "") setError(new Error(missing));
          else if (!isBusy) void enter(secret === "key" ? { key: text } : { token: text });
          setSecretWrong(true);
        }}
      >
        <h1 id="sign-in">{isOverPage ? "Sign in again" : title}</h1>
        {isOverPage && <p>Sign in to continue. What you typed on the page stays.</p>}
        <Notes id="secret" problem={(error ?? choices.error)?.message} />
        {issuer !== null && (
          <>
            {!issuer.available && error === null && (
              <p class="notice">{issuer.name} could not be reached a moment ago.</p>
            )}
            <Button class="primary" disabled={isBusy} onClick={() => void visitIssuer()}>
              {isBusy ? "Signing in …" : `Sign in with ${issuer.name}`}
            </Button>
            {isOverPage && <p class="quiet">It opens in another tab. Come back here afterwards.</p>}
          </>
        )}
        {takesSecret && (
          <>
            {issuer !== null && <p class="quiet">Or with a secret:</p>}
            <Input
              id="secret"
              label={label}
              type="password"
              autocomplete="current-password"
              autofocus={issuer === null}
              value={typed}
              aria-invalid={error !== null && isSecretWrong}
              aria-describedby="secret-hint secret-error"
              change={setTyped}
            />
            <button type="submit" class={issuer === null ? "primary" : ""} disabled={isBusy}>
              {isBusy ? "Signing in …" : "Sign in"}
            </button>
            <p id="secret-hint" class="quiet">
              {hint}
            </p>
          </>
        )}
      </Form>
      {choices.value?.sends_links === true && <AskForLink />}
    </>
  );
}

function invitationIn(arrival: Arrival | null): string | null {
  return arrival !== null && "invitation" in arrival ? arrival.invitation : null;
}
