/** Joining by a link that many people have: a name, and with a mail server an address. */

import { useState } from "preact/hooks";
import { ApiError, apiPath, send, signIn, signInChoices } from "./api.ts";
import { Button } from "./button.tsx";
import { forgetPageSecret, pageSecret } from "./page-secret.ts";
import { Form, Input, Notes, useAttempt } from "./plain-form.tsx";
import { go, pathTo } from "./router.tsx";
import { useLoaded } from "./use-loaded.ts";

export function JoinForm({ code, done }: { code: string; done(): void }) {
  const choices = useLoaded("sign-in", signInChoices);
  const [name, setName] = useState("");
  const [email, setEmail] = useState("");
  const [said, setSaid] = useState<string | null>(null);
  const { isBusy, error, attempt } = useAttempt();
  const isMailed = choices.value?.sends_links === true;
  const join = async () => {
    setSaid(null);
    if (isMailed) {
      // The answer is the same for all addresses.
      await send("POST", apiPath("sign-in", "joins"), { code, name, email: email.trim() });
      setSaid(`A mail is on its way to ${email.trim()}. Open the link in it: it takes your seat.`);
      return;
    }
    // All tabs share the secret, and signing out forgets it: one person takes one seat.
    await signIn({ join: { code, join_id: pageSecret(), name } }).catch((failure: unknown) => {
      // Who presses the button again is somebody else.
      if (isJoined(failure)) forgetPageSecret();
      throw failure;
    });
    go(pathTo("keys"), true);
    done();
  };
  const failed = error ?? choices.error;
  return (
    <Form submit={() => !isBusy && choices.value !== null && void attempt(join)}>
      <h1 id="sign-in">Join</h1>
      <p>
        {isMailed
          ? "You get a mail with a link. It opens an account of your own, in which you make keys."
          : "You get an account of your own at once, in which you make keys."}
      </p>
      <Input
        id="join-name"
        label="Your name"
        autocomplete="name"
        autofocus
        value={name}
        aria-describedby="join-hint join-error"
        change={setName}
      />
      {isMailed && (
        <Input
          id="join-email"
          label="Your e-mail address"
          type="email"
          autocomplete="email"
          value={email}
          aria-describedby="join-error"
          change={setEmail}
        />
      )}
      <Notes id="join" hint="Whoever gave you the link sees it." problem={failed?.message} />
      <p role="status">{said}</p>
      <button type="submit" class="primary" disabled={isBusy || choices.value === null}>
        {isBusy
          ? "Please wait …"
          : isMailed
            ? "Send me the link"
            : isJoined(error)
              ? "I am somebody else: join"
              : "Join"}
      </button>{" "}
      {/* The code is not in the address any more. */}
      <Button onClick={() => location.reload()}>Sign in another way</Button>
    </Form>
  );
}

function isJoined(error: unknown): boolean {
  return error instanceof ApiError && error.code === "already_joined";
}
