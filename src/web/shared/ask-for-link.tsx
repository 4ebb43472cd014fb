/** Asks for a new link of an invitation. The page says the same for all addresses. */
import { useState } from "preact/hooks";
import { askForLink } from "./api.ts";

export function AskForLink() {
  const [email, setEmail] = useState("");
  const [said, setSaid] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const ask = async () => {
    setSaid(null);
    setError(null);
    try {
      await askForLink(email.trim());
      setSaid("If this address was invited, a mail with a new link is on its way. Earlier links end.");
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void ask();
      }}
    >
      <p class="quiet">Were you invited, and your link does not work any more?</p>
      <label class="field" for="invited-email">
        <span>E-mail address</span>
        <input
          id="invited-email"
          type="email"
          autocomplete="email"
          value={email}
          aria-invalid={error !== null}
          aria-describedby="invited-error"
          onInput={({ currentTarget }) => setEmail(currentTarget.value)}
        />
      </label>
      <button type="submit">Send me a new link</button>
      <p role="status">{said}</p>
      <p id="invited-error" class="error" role="alert">
        {error}
      </p>
    </form>
  );
}
