/** A new secret, which is shown once, with a button that copies it. */
import { useRef } from "preact/hooks";
import { CopyButton } from "./copy.tsx";

interface SecretProps {
  /** Null: an earlier response had it. */
  secret: string | null;
  /** What to do then. */
  lost: string;
  of?: "key" | "invitation" | "link";
}

const labels = {
  key: "Secret of the key",
  invitation: "Link of the invitation",
  link: "Link for the people who join",
};

export function Secret({ secret, lost, of = "key" }: SecretProps) {
  const input = useRef<HTMLInputElement>(null);
  const what = of === "key" ? "secret" : "link";
  if (secret === null) {
    return (
      <p class="notice warn">
        The change was applied before, and its response with the secret is lost. {lost}
      </p>
    );
  }
  return (
    <>
      <p>Copy the {what} now. It is shown only here, and Inkwell keeps no copy of it.</p>
      <div class="secret">
        <input ref={input} type="text" readOnly value={secret} aria-label={labels[of]} />
        <CopyButton
          text={secret}
          label={`Copy the ${what}`}
          failed={`The ${what} is selected: copy it with your keyboard.`}
          select={() => input.current?.select()}
        />
      </div>
    </>
  );
}
