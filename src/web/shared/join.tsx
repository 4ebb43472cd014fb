/** Joining by a link that many people have: a name, and with a mail server an address. */
import { useState } from "preact/hooks";
import { ApiError, askToJoin, signIn, signInChoices } from "./api.ts";
import { forgetPageSecret, pageSecret } from "./page-secret.ts";
import { go, pathTo } from "./router.tsx";
import { useLoaded } from "./use-loaded.ts";

export function JoinForm({ code, done }: { code: string; done(): void }) {
  const choices = useLoaded("sign-in", signInChoices);
  const [name, setName] = useState("");
  const [email, setEmail] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [said, setSaid] = useState<string | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const isMailed = choices.value?.sends_links === true;
  const join = async () => {
    setBusy(true);
    setError(null);
    setSaid(null);
    try {
      if (isMailed) {
        await askToJoin({ code, name, email: email.trim() });
        setSaid(`A mail is on its way to ${email.trim()}. Open the link in it: it takes your seat.`);
      } else {
        // All tabs share the secret, and signing out forgets it: one person takes one seat.
        await signIn({ join: { code, join_id: pageSecret(), name } });
        go(pathTo("keys"), true);
        done();
      }
    } catch (failure) {
      // Who presses the button again is somebody else.
      if (failure instanceof ApiError && failure.code === "already_joined") forgetPageSecret();
      setError(failure instanceof Error ? failure : new Error(String(failure)));
    }
    setBusy(false);
  };
  const failed = error ?? choices.error;
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        if (!isBusy && choices.value !== null) void join();
      }}
    >
      <h1 id="sign-in">Join</h1>
      <p>
        {isMailed
          ? "You get a mail with a link. It opens an account of your own, in which you make keys."
          : "You get an account of your own at once, in which you make keys."}
      </p>
      <label class="field" for="join-name">
        <span>Your name</span>
        <input
          id="join-name"
          autocomplete="name"
          autofocus
          value={name}
          aria-describedby="join-hint join-error"
          onInput={({ currentTarget }) => setName(currentTarget.value)}
        />
      </label>
      {isMailed && (
        <label class="field" for="join-email">
          <span>Your e-mail address</span>
          <input
            id="join-email"
            type="email"
            autocomplete="email"
            value={email}
            aria-describedby="join-error"
            onInput={({ currentTarget }) => setEmail(currentTarget.value)}
          />
        </label>
      )}
      <p id="join-hint" class="quiet">
        Whoever gave you the link sees it.
      </p>
      <p id="join-error" class="error" role="alert">
        {failed?.message}
      </p>
      <p role="status">{said}</p>
      <button type="submit" class="primary" disabled={isBusy || choices.value === null}>
        {isBusy ? "Please wait …" : labelOf(error, isMailed)}
      </button>{" "}
      {/* The code is not in the address any more. */}
      <button type="button" onClick={() => location.reload()}>
        Sign in another way
      </button>
    </form>
  );
}

function labelOf(error: Error | null, isMailed: boolean): string {
  if (error instanceof ApiError && error.code === "already_joined") return "I am somebody else: join";
  return isMailed ? "Send me the link" : "Join";
}
