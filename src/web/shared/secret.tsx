/** A new secret, which is shown once, with a button that copies it. */
import { useRef, useState } from "preact/hooks";

/** `secret` is null if an earlier response had it; `lost` says what to do then. */
export function Secret({ secret, lost }: { secret: string | null; lost: string }) {
  const input = useRef<HTMLInputElement>(null);
  const [copied, setCopied] = useState("");
  if (secret === null) {
    return (
      <p class="notice warn">
        The change was applied before, and its response with the secret is lost. {lost}
      </p>
    );
  }
  const copy = async () => {
    input.current?.select();
    try {
      await navigator.clipboard.writeText(secret);
      setCopied("Copied.");
    } catch {
      // Without https, browsers may forbid the clipboard.
      setCopied("The secret is selected: copy it with your keyboard.");
    }
  };
  return (
    <>
      <p>Copy the secret now. It is shown only here, and Inkwell keeps no copy of it.</p>
      <div class="secret">
        <input ref={input} type="text" readOnly value={secret} aria-label="Secret of the key" />
        <button type="button" onClick={copy}>
          Copy
        </button>
      </div>
      <p role="status" class="quiet">
        {copied}
      </p>
    </>
  );
}
