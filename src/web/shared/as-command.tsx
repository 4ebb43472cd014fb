/** The requests of a dialog for a terminal, of the values now in the form. Only the console has them. */
import { useState } from "preact/hooks";
import { type Asked, terminalTexts } from "../../actions/command.ts";
import { rowsMax } from "../../actions/page-fields.ts";
import { Code } from "./copy.tsx";
import { commandLine } from "./paths.ts";

export function AsCommand({ of }: { of: readonly Asked[] }) {
  const [isOpen, setOpen] = useState(false);
  if (commandLine === "") return null;
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>As a command</summary>
      {of.length === 0 && <p class="quiet">No value is changed yet.</p>}
      {of.some(([, { limit }]) => limit !== undefined) && (
        <p class="quiet">
          It changes {rowsMax} rows at most. If the answer has a next, send it again with that as after.
        </p>
      )}
      {isOpen &&
        of.length > 0 &&
        terminalTexts(of, location.origin, commandLine).map(([title, text]) => (
          <Code key={title} title={title} text={text} copyLabel={`Copy for ${title}`} label={`As ${title}`} />
        ))}
    </details>
  );
}
