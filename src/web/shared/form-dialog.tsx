/**
 * A dialog with a form for one change. The operation id is made when the dialog opens, so another
 * click or a retry applies the change once. Errors stand at their fields and keep what was typed.
 *
 * With a `preview`, the first step shows what will happen, and only the second one changes it.
 */
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ActionTexts } from "../../actions/action.ts";
import type { Asked } from "../../actions/command.ts";
import { ApiError } from "./api.ts";
import { AsCommand } from "./as-command.tsx";
import { Button, useForbidden } from "./button.tsx";
import { Field } from "./field.tsx";
import { type FieldOf, initialOf, shownOf, type Values, valueProblemOf, withLabels } from "./form-fields.ts";
import { newOperationId } from "./operation-id.ts";
import { Form } from "./plain-form.tsx";
import { Failure } from "./states.tsx";
import { toast } from "./toasts.tsx";
import { useLoaded } from "./use-loaded.ts";

interface FormProps {
  title: string;
  /** Says what the change does, above the fields. */
  intro?: ComponentChildren;
  fields?: readonly FieldOf[];
  submit: string;
  /** What it does, if not everybody may do it, with the values as JSON. */
  action?: ActionTexts;
  jsonOf?(values: Values): object;
  /** What `send` sends, for a terminal. */
  requests?(values: Values, operationId: string): readonly Asked[];
  isDangerous?: boolean;
  /** Begins the operation id, which the journal shows. */
  kind: string;
  preview?(values: Values): Promise<ComponentChildren>;
  /** Returns what to show instead of closing the dialog, such as a new key. */
  send(values: Values, operationId: string): Promise<{ done?: string; result?: ComponentChildren }>;
  /** Called when the dialog closes; `isDone` if the change was applied. */
  close(isDone: boolean): void;
}

interface Problem {
  param: string | null;
  message: string;
}

export function FormDialog(props: FormProps) {
  const { title, intro, fields = [], submit, isDangerous = false, kind, preview, send, close } = props;
  const { action, jsonOf, requests } = props;
  const [operationId] = useState(() => newOperationId(kind));
  const [values, setValues] = useState<Values>(() => initialOf(fields));
  const [problems, setProblems] = useState<readonly Problem[]>([]);
  const [isBusy, setBusy] = useState(false);
  const [previewed, setPreviewed] = useState<ComponentChildren>(null);
  const [result, setResult] = useState<ComponentChildren>(null);
  const [isMoreOpen, setMoreOpen] = useState(false);
  const json = jsonOf?.(values);
  const forbidden = useForbidden({ action, json });
  const isPreview = preview !== undefined && previewed === null;
  const latest = useRef(values);
  latest.current = values;

  const shown = shownOf(fields, values);
  const more = shown.filter(({ isMore = false }) => isMore);
  const problemAt = (name: string) => problems.find(({ param }) => param === name)?.message ?? null;
  const general = problems.filter(({ param }) => !shown.some(({ name }) => name === param));
  const change = (name: string, value: string) => {
    const field = fields.find((each) => each.name === name);
    setValues((all) => ({ ...all, ...field?.fills?.(value, all), [name]: value }));
    setProblems((all) => all.filter(({ param }) => param !== name));
    setPreviewed(null);
  };
  const report = (found: readonly Problem[]) => {
    setProblems(found);
    if (more.some(({ name }) => found.some(({ param }) => param === name))) setMoreOpen(true);
  };
  const run = async (form: HTMLFormElement) => {
    const found = shown.flatMap((field) => {
      const problem = valueProblemOf(field, values[field.name] ?? "", isHalfTyped(form, field.name));
      const message = problem ?? field.check?.(values) ?? null;
      return message === null ? [] : [{ param: field.name, message }];
    });
    report(found);
    if (found.length > 0 || isBusy) return;
    setBusy(true);
    try {
      if (preview !== undefined && isPreview) {
        const changes = await preview(values);
        // Fields may have changed meanwhile: the preview is of other values then.
        if (latest.current === values) setPreviewed(changes);
      } else {
        const { done, result: outcome } = await send(values, operationId);
        if (done !== undefined) toast(done);
        if (outcome === undefined) close(true);
        else setResult(outcome);
      }
    } catch (error) {
      report([
        {
          param: fieldAt(error instanceof ApiError ? error.param : null, fields, values),
          message: withLabels(error instanceof Error ? error.message : String(error), fields),
        },
      ]);
    } finally {
      setBusy(false);
    }
  };
  const fieldIn = (field: FieldOf) => (
    <Field
      key={field.name}
      field={field}
      value={values[field.name] ?? ""}
      problem={problemAt(field.name)}
      change={(value) => change(field.name, value)}
    />
  );
  return (
    // Escape would lose a secret, or the answer of a change that is on its way.
    <Dialog title={title} cancel={() => !isBusy && result === null && close(false)}>
      {result !== null ? (
        <>
          {result}
          <div class="buttons">
            <Button class="primary" onClick={() => close(true)}>
              Done
            </Button>
          </div>
        </>
      ) : (
        <Form submit={run}>
          {intro && <div class="intro">{intro}</div>}
          {shown.filter((field) => !more.includes(field)).map(fieldIn)}
          {more.length > 0 && (
            <details open={isMoreOpen} onToggle={({ currentTarget }) => setMoreOpen(currentTarget.open)}>
              <summary>More settings</summary>
              {more.map(fieldIn)}
            </details>
          )}
          {previewed !== null && <div class="preview">{previewed}</div>}
          {requests && <AsCommand of={requests(values, operationId)} />}
          {forbidden !== null && <p class="error">{forbidden}</p>}
          {general.map(({ message }) => (
            <p key={message} class="error" role="alert">
              {message}
            </p>
          ))}
          <div class="buttons">
            <Button disabled={isBusy} onClick={() => close(false)}>
              Cancel
            </Button>
            <Button
              action={action}
              json={json}
              type="submit"
              class={isDangerous && !isPreview ? "danger" : "primary"}
              disabled={isBusy}
            >
              {isBusy ? "Please wait …" : isPreview ? "Preview" : submit}
            </Button>
          </div>
        </Form>
      )}
    </Dialog>
  );
}

interface LoadedDialogProps<T> {
  /** Of the dialog that stands there if the choices cannot be loaded. */
  title: string;
  of: string;
  load(signal: AbortSignal): Promise<T>;
  close(isDone: boolean): void;
  children(value: T): ComponentChildren;
}

/** Loads the choices of a dialog before it opens. */
export function LoadedDialog<T>({ title, of, load, close, children }: LoadedDialogProps<T>) {
  const { value, error, reload } = useLoaded(of, load);
  if (value !== null) return <>{children(value)}</>;
  const cancel = () => close(false);
  return (
    error && (
      <Dialog title={title} cancel={cancel}>
        <Failure error={error} retry={reload} />
        <div class="buttons">
          <Button onClick={cancel}>Cancel</Button>
        </div>
      </Dialog>
    )
  );
}

/** A dialog with its title. */
export function Dialog(props: { title: string; cancel(): void; children: ComponentChildren }) {
  const heading = useId();
  return (
    <Modal heading={heading} cancel={props.cancel}>
      <h2 id={heading}>{props.title}</h2>
      {props.children}
    </Modal>
  );
}

/** `cancel` is called for the Escape key, and the dialog stays until it is removed. */
export function Modal(props: { heading: string; cancel?(): void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  // Before the next key press, which belongs to the dialog.
  useLayoutEffect(() => {
    dialog.current?.showModal();
    // It gives the focus back to the element that had it.
    return () => dialog.current?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={props.heading}
      // Browsers close it at a second Escape, whatever the answer to the first one was.
      onClose={() => dialog.current?.showModal()}
      onCancel={(event) => {
        event.preventDefault();
        props.cancel?.();
      }}
    >
      {props.children}
    </dialog>
  );
}

/** Browsers report a date without its time, or half a year, as an empty field. */
function isHalfTyped(form: HTMLFormElement, name: string): boolean {
  const input = form.querySelector(`[name="${name}"]`);
  return input instanceof HTMLInputElement && input.validity.badInput;
}

/**
 * Returns the field of a fault: `models` for `models[1]`, and an empty part of `spending_caps` for
 * `spending_caps[0]`.
 */
function fieldAt(param: string | null, fields: readonly FieldOf[], values: Values): string | null {
  if (param === null) return null;
  const [list = ""] = param.split("[", 1);
  if (fields.some((field) => field.name === list)) return list;
  const name = param.replace(/\[\d+\]/, "").replace(/\[\d+\]$/, "");
  const parts = fields.filter((field) => field.name.startsWith(`${name}.`));
  return (parts.find((part) => !values[part.name]) ?? parts[0])?.name ?? name;
}
