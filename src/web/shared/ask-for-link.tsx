/** Asks for a new link of an invitation. The page says the same for all addresses. */
import { useState } from "preact/hooks";
import { apiPath, send } from "./api.ts";
import { Form, Input, Notes, useAttempt } from "./plain-form.tsx";

export function AskForLink() {
  const [email, setEmail] = useState("");
  const [said, setSaid] = useState<string | null>(null);
  const { error, attempt } = useAttempt();
  const ask = async () => {
    setSaid(null);
    await send("POST", apiPath("sign-in", "links"), { email: email.trim() });
    setSaid("If this address was invited, a mail with a new link is on its way. Earlier links end.");
  };
  return (
    <Form submit={() => void attempt(ask)}>
      <p class="quiet">Were you invited, and your link does not work any more?</p>
      <Input
        id="invited-email"
        label="E-mail address"
        type="email"
        autocomplete="email"
        value={email}
        aria-invalid={error !== null}
        aria-describedby="invited-error"
        change={setEmail}
      />
      <button type="submit">Send me a new link</button>
      <p role="status">{said}</p>
      <Notes id="invited" problem={error?.message} />
    </Form>
  );
}
