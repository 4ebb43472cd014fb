/** Sign-in by a secret, or by the one-time code of a link. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, isSignedIn, signIn } from "./api.ts";
import { showModal } from "./form-dialog.tsx";
import { appTitle } from "./paths.ts";

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
  /** From a link; exchanged at once. */
  code: string | null;
  /** The session ended while a page was open. */
  isOverPage?: boolean;
  done(): void;
}

export function SignIn({ words, code, isOverPage = false, done }: SignInProps) {
  const form = <SignInForm words={words} code={code} isOverPage={isOverPage} done={done} />;
  return isOverPage ? <OverPage>{form}</OverPage> : <main class="sign-in">{form}</main>;
}

/** A dialog that only a sign-in closes. */
function OverPage({ children }: { children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => showModal(dialog.current), []);
  return (
    <dialog ref={dialog} aria-labelledby="sign-in" onCancel={(event) => event.preventDefault()}>
      {children}
    </dialog>
  );
}

function SignInForm({ words, code, isOverPage, done }: Required<SignInProps>) {
  const { title, secret, label, missing, hint } = words;
  const [typed, setTyped] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const enter = async (credentials: Parameters<typeof signIn>[0]) => {
    setBusy(true);
    setError(null);
    try {
      await signIn(credentials);
      done();
    } catch (failure) {
      if ("code" in credentials && failure instanceof ApiError && failure.status === 401) {
        // A link that is opened again, such as from the history of the browser.
        if (await isSignedIn().catch(() => false)) {
          done();
          return;
        }
      }
      setError(failure instanceof Error ? failure.message : String(failure));
      setBusy(false);
    }
  };
  useEffect(() => {
    document.title = `Sign in · ${appTitle}`;
    if (code !== null) void enter({ code });
  }, []);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        const text = typed.trim();
        if (text === "") setError(missing);
        else if (!isBusy) void enter(secret === "key" ? { key: text } : { token: text });
      }}
    >
      <h1 id="sign-in">{isOverPage ? "Your session has ended" : title}</h1>
      {isOverPage && <p>Sign in to continue. What you typed on the page stays.</p>}
      <label class="field" for="secret">
        <span>{label}</span>
        <input
          id="secret"
          type="password"
          autocomplete="current-password"
          autofocus
          value={typed}
          aria-invalid={error !== null}
          aria-describedby="secret-hint secret-error"
          onInput={({ currentTarget }) => setTyped(currentTarget.value)}
        />
      </label>
      <p id="secret-error" class="error" role="alert">
        {error}
      </p>
      <button type="submit" class="primary" disabled={isBusy}>
        {isBusy ? "Signing in …" : "Sign in"}
      </button>
      <p id="secret-hint" class="quiet">
        {hint}
      </p>
    </form>
  );
}
