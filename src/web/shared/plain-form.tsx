/** Forms, and for those that are no dialog: their inputs, and one step at a time with its error. */
import type { ComponentChildren, ComponentProps } from "preact";
import { useId, useState } from "preact/hooks";
import type { FieldProps } from "./form-fields.ts";

/** `attempt` runs a step, and keeps the error of the last one. */
export function useAttempt(isBusyAtFirst = false) {
  const [isBusy, setBusy] = useState(isBusyAtFirst);
  const [error, setError] = useState<Error | null>(null);
  const attempt = async (step: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await step();
    } catch (failure) {
      setError(failure instanceof Error ? failure : new Error(String(failure)));
    }
    setBusy(false);
  };
  return { isBusy, error, setError, attempt };
}

/** A form whose input this page checks, and whose entry leads to no other page. */
export function Form(props: { submit(form: HTMLFormElement): void; children: ComponentChildren }) {
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        props.submit(event.currentTarget);
      }}
    >
      {props.children}
    </form>
  );
}

/** What stands below an input: its hint and its error. */
export function Notes(props: { id: string; hint?: string; problem: string | null | undefined }) {
  const { id, hint, problem } = props;
  return (
    <>
      {hint && (
        <p id={`${id}-hint`} class="quiet">
          {hint}
        </p>
      )}
      <p id={`${id}-error`} class="error" role="alert">
        {problem}
      </p>
    </>
  );
}

/** A field of several inputs. */
export function InputGroup(props: Omit<FieldProps, "value" | "change"> & { children: ComponentChildren }) {
  const { field, problem, children } = props;
  const { name, label, hint = "" } = field;
  const id = useId();
  return (
    <fieldset
      id={id}
      class="field"
      name={name}
      aria-invalid={problem !== null}
      aria-describedby={`${id}-hint ${id}-error`}
    >
      <legend>{label}</legend>
      {children}
      <Notes id={id} hint={hint} problem={problem} />
    </fieldset>
  );
}

type InputProps = ComponentProps<"input"> & {
  id: string;
  label: string;
  value: string;
  change(value: string): void;
};

export function Input({ id, label, change, ...input }: InputProps) {
  return (
    <label class="field" for={id}>
      <span>{label}</span>
      <input id={id} {...input} onInput={({ currentTarget }) => change(currentTarget.value)} />
    </label>
  );
}
