/** A new secret, which is shown once, with a button that copies it. */
import { useRef } from "preact/hooks";
import { CopyButton } from "./copy.tsx";

/** `secret` is null if an earlier response had it; `lost` says what to do then. */
export function Secret({ secret, lost }: { secret: string | null; lost: string }) {
  const input = useRef<HTMLInputElement>(null);
  if (secret === null) {
    return (
      <p class="notice warn">
        The change was applied before, and its response with the secret is lost. {lost}
      </p>
    );
  }
  return (
    <>
      <p>Copy the secret now. It is shown only here, and Inkwell keeps no copy of it.</p>
      <div class="secret">
        <input ref={input} type="text" readOnly value={secret} aria-label="Secret of the key" />
        <CopyButton
          text={secret}
          label="Copy the secret"
          failed="The secret is selected: copy it with your keyboard."
          select={() => input.current?.select()}
        />
      </div>
    </>
  );
}
