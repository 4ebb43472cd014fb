/** A button that loads a file and saves it. An error stands beside it. */
import type { ActionTexts } from "../../actions/action.ts";
import { Button } from "./button.tsx";
import { counted } from "./numbers.ts";
import { useAttempt } from "./plain-form.tsx";
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
  const { error, attempt } = useAttempt();
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
          {error.message}
        </span>
      )}
      <Button action={action} aria-label={label} onClick={() => attempt(save)}>
        {text}
      </Button>
    </>
  );
}
