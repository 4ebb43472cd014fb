/** A button that loads a file and saves it. An error stands beside it. */
import { useState } from "preact/hooks";
import type { ActionTexts } from "../../actions/action.ts";
import { ActionButton } from "./action-button.tsx";
import { counted } from "./numbers.ts";
import { toast } from "./toasts.tsx";

interface SaveProps {
  /** The name of the file. */
  file: string;
  load(): Promise<Blob>;
  text: string;
  /** Default: everybody may do it. */
  action?: ActionTexts;
  /** Default: the text. */
  label?: string;
}

export function SaveButton({ file, load, text, action, label = text }: SaveProps) {
  const [error, setError] = useState<string | null>(null);
  const save = async () => {
    const blob = await load();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = file;
    link.click();
    URL.revokeObjectURL(link.href);
    toast(`${counted(blob.size, "byte")} are saved as ${file}.`);
  };
  return (
    <>
      {error && (
        <span class="error" role="alert">
          {error}
        </span>
      )}
      <ActionButton
        action={action}
        aria-label={label}
        onClick={() => {
          setError(null);
          save().catch((failure: Error) => setError(failure.message));
        }}
      >
        {text}
      </ActionButton>
    </>
  );
}
