/** Sign-in by operator token, or by the one-time code of a link. */
import { useEffect, useRef, useState } from "preact/hooks";
import { showModal } from "../../shared/action.tsx";
import { ApiError, signIn } from "../../shared/api.ts";

interface SignInProps {
  /** From a link; exchanged at once. */
  code: string | null;
  /** The session ended while a page was open. */
  isOverPage?: boolean;
  done(): void;
}

export function SignIn({ code, isOverPage = false, done }: SignInProps) {
  const form = <SignInForm code={code} isOverPage={isOverPage} done={done} />;
  return isOverPage ? <OverPage>{form}</OverPage> : <main class="sign-in">{form}</main>;
}

/** A dialog that only a sign-in closes. */
function OverPage({ children }: { children: preact.ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => showModal(dialog.current), []);
  return (
    <dialog ref={dialog} aria-labelledby="sign-in" onCancel={(event) => event.preventDefault()}>
      {children}
    </dialog>
  );
}

function SignInForm({ code, isOverPage, done }: Required<SignInProps>) {
  const [token, setToken] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const enter = async (credentials: { token: string } | { code: string }) => {
    setBusy(true);
    setError(null);
    try {
      await signIn(credentials);
      done();
    } catch (failure) {
      setBusy(false);
      if ("code" in credentials && failure instanceof ApiError && failure.status === 401) {
        setError(
          "This sign-in link was used or is older than five minutes. Enter the operator token, or print another link with: inkwell console",
        );
      } else setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  useEffect(() => {
    document.title = "Sign in · Inkwell console";
    if (code !== null) void enter({ code });
  }, []);
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (token.trim() === "") setError("Enter the operator token.");
        else if (!isBusy) void enter({ token: token.trim() });
      }}
    >
      <h1 id="sign-in">{isOverPage ? "Your session has ended" : "Inkwell console"}</h1>
      {isOverPage && <p>Sign in to continue. What you typed on the page stays.</p>}
      <label class="field" for="token">
        <span>Operator token</span>
        <input
          id="token"
          type="password"
          autocomplete="current-password"
          autofocus
          value={token}
          aria-invalid={error !== null}
          aria-describedby="token-hint token-error"
          onInput={({ currentTarget }) => setToken(currentTarget.value)}
        />
      </label>
      <p id="token-error" class="error" role="alert">
        {error}
      </p>
      <button type="submit" class="primary" disabled={isBusy}>
        {isBusy ? "Signing in …" : "Sign in"}
      </button>
      <p id="token-hint" class="quiet">
        The token is <code>INKWELL_OPERATOR_TOKEN</code>, or the content of the file{" "}
        <code>operator-token</code> in the data folder. <code>inkwell console</code> prints a link that signs
        you in.
      </p>
    </form>
  );
}
