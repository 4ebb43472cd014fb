/** Copying text with a button, what it says afterwards, and code with such a button. */

import { useState } from "preact/hooks";
import { Button } from "./button.tsx";

/** `failed` says how to copy by hand: without https, browsers may forbid the clipboard. */
export function CopyButton(props: { text: string; label: string; failed?: string; select?(): void }) {
  const { text, label, failed = "Select the text and copy it with your keyboard.", select } = props;
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
      <Button aria-label={label} onClick={copy}>
        Copy
      </Button>
      <span role="status" class={copied === "" ? "hidden" : "quiet"}>
        {copied}
      </span>
    </>
  );
}

interface CodeProps {
  text: string;
  /** Shown above the code. */
  title: string;
  copyLabel: string;
  /** Names the code for screen readers. */
  label: string;
  /** Id of the code, if tabs choose it. */
  panel?: string;
}

export function Code({ text, title, copyLabel, label, panel }: CodeProps) {
  return (
    <figure class="code">
      <figcaption>
        <span>{title}</span>
        <CopyButton text={text} label={copyLabel} />
      </figcaption>
      <section id={panel} role={panel === undefined ? "region" : "tabpanel"} aria-label={label} tabIndex={0}>
        <code>{text}</code>
      </section>
    </figure>
  );
}
