/** Copying text with a button, and what it says afterwards. */
import { useState } from "preact/hooks";

/** `failed` says how to copy by hand: without https, browsers may forbid the clipboard. */
export function CopyButton(props: { text: string; label: string; failed: string; select?(): void }) {
  const { text, label, failed, select } = props;
  const [copied, setCopied] = useState("");
  const copy = async () => {
    select?.();
    try {
      await navigator.clipboard.writeText(text);
      setCopied("Copied.");
    } catch {
      setCopied(failed);
    }
  };
  return (
    <>
      <button type="button" aria-label={label} onClick={copy}>
        Copy
      </button>
      <span role="status" class="quiet">
        {copied}
      </span>
    </>
  );
}
