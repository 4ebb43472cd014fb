/** A first request with a key: for programs, chat interfaces and editors, as tabs with a copy. */

import { useId, useState } from "preact/hooks";
import { snippets } from "../../actions/snippets.ts";
import { Button } from "./button.tsx";
import { Code } from "./copy.tsx";

const unknownUrl = "URL_OF_THE_API";

interface SnippetsProps {
  /** Null: this page does not know the URL. */
  publicUrl: string | null;
  model: string;
  /** A key, or what stands in its place. */
  secret: string;
}

export function Snippets({ publicUrl, model, secret }: SnippetsProps) {
  const [chosen, choose] = useState(0);
  const id = useId();
  const url = `${(publicUrl ?? unknownUrl).replace(/\/+$/, "")}/v1`;
  const all = Object.entries(snippets(url, model, secret)).map(
    ([name, code]) => [...name.split(": "), code] as const,
  );
  const [title = "", where = "", code = ""] = all[chosen] ?? [];
  return (
    <>
      {publicUrl === null && (
        <p class="notice warn">
          This page does not know the URL of the API. Put it in the place of <code>{unknownUrl}</code>.
        </p>
      )}
      <div
        role="tablist"
        aria-label="Clients"
        class="tabs"
        onKeyDown={({ key, currentTarget }) => {
          const step = { ArrowRight: 1, ArrowLeft: all.length - 1 }[key];
          if (step === undefined) return;
          const next = (chosen + step) % all.length;
          choose(next);
          currentTarget.querySelectorAll("button")[next]?.focus();
        }}
      >
        {all.map(([name], index) => (
          <Button
            key={name}
            role="tab"
            aria-selected={index === chosen}
            aria-controls={id}
            tabIndex={index === chosen ? 0 : -1}
            onClick={() => choose(index)}
          >
            {name}
          </Button>
        ))}
      </div>
      <Code text={code} title={where} copyLabel={`Copy the request with ${title}`} label={title} panel={id} />
    </>
  );
}
