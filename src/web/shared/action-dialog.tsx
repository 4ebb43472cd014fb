/**
 * The dialog of an action: title, inputs, labels, hints and sentences are those of its description.
 * A change of present values sends only those that differ from what the form began with, so it
 * undoes no change that somebody else made meanwhile.
 */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { type ActionTexts, caseOf } from "../../actions/action.ts";
import type { Asked } from "../../actions/command.ts";
import { inputsOf, jsonIn, withoutNulls } from "./action-fields.ts";
import { run } from "./api.ts";
import { FormDialog } from "./form-dialog.tsx";
import { type FieldOf, initialOf, type Values } from "./form-fields.ts";

export interface ActionProps<Result> {
  action: ActionTexts & { done?(result: Result): string };
  /** Values that the page has, and its user does not type. */
  target?: Readonly<Record<string, string | readonly string[]>>;
  /** Whom or what the action is about, for the title. */
  subject?: string;
  /** The present values, as JSON. */
  before?: object;
  /** Values of the inputs when the form opens. */
  initial?: Values;
  /** Changes inputs: other hints, options that the page knows. */
  inputs?(inputs: FieldOf[]): FieldOf[];
  intro?: ComponentChildren;
  title?: string;
  submit?: string;
  /** Default: as the action says. */
  isDangerous?: boolean;
  preview?(json: Readonly<Record<string, unknown>>): Promise<ComponentChildren>;
  /** Shown after the form, in the place of one request. */
  run?(json: Readonly<Record<string, unknown>>): ComponentChildren;
  /** Sends it in place of the request of the action. `values`: as typed, of all inputs. */
  make?(json: Readonly<Record<string, unknown>>, values: Values, operationId: string): Promise<Result>;
  /** What is sent then, for a terminal. Default: the request of the action. */
  requests?(json: Readonly<Record<string, unknown>>, values: Values, operationId: string): readonly Asked[];
  /** Returns what to show instead of closing the dialog, such as a new key. */
  result?(result: Result): ComponentChildren;
  close(isDone: boolean): void;
}

export function ActionDialog<Result>(props: ActionProps<Result>) {
  const { action, target = {}, subject = "", before, initial, preview, result, close } = props;
  const { once } = action;
  const { form } = caseOf(action, target);
  const entries = Object.entries(action.input).filter(([name]) => name !== once && !(name in target));
  const fields = Object.fromEntries(entries);
  // Lists may be loaded again while the form is open.
  const [inputs] = useState(() => {
    const made = inputsOf(fields, before).map((input) => {
      const text = initial?.[input.name];
      return text === undefined ? input : { ...input, initial: text };
    });
    return props.inputs?.(made) ?? made;
  });
  const [unchanged] = useState(() => jsonIn(fields, initialOf(inputs)));
  const json = (values: Values) => {
    const typed = jsonIn(fields, values);
    if (before === undefined) return withoutNulls(typed);
    const changed = Object.entries(typed).filter(
      ([name, value]) => JSON.stringify(value) !== JSON.stringify(unchanged[name]),
    );
    return Object.fromEntries(changed);
  };
  /** Null: nothing is changed. */
  const sentOf = (values: Values, operationId: string) => {
    const typed = json(values);
    if (before !== undefined && Object.keys(typed).length === 0) return null;
    return { ...target, ...(once !== undefined && { [once]: operationId }), ...typed };
  };
  const intro = props.intro ?? (form?.intro && <p>{form.intro}</p>);
  return (
    <FormDialog
      title={props.title ?? (form?.title ?? action.title).replace("{name}", () => subject)}
      {...(intro ? { intro } : {})}
      fields={inputs}
      action={action}
      jsonOf={(values) => ({ ...before, ...target, ...json(values) })}
      requests={(values, operationId) => {
        const sent = sentOf(values, operationId);
        return sent === null ? [] : (props.requests?.(sent, values, operationId) ?? [[action, sent]]);
      }}
      submit={props.submit ?? form?.submit ?? action.title}
      isDangerous={props.isDangerous ?? form?.isDangerous === true}
      kind={action.id.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}
      {...(preview === undefined ? {} : { preview: (values: Values) => preview(json(values)) })}
      send={async (values, operationId) => {
        const sent = sentOf(values, operationId);
        if (sent === null) return { done: "Nothing was changed." };
        if (props.run !== undefined) return { result: props.run(sent) };
        const made = await (props.make?.(sent, values, operationId) ?? run<Result>(action, sent));
        return { done: action.done?.(made) ?? `${action.title}: done.`, result: result?.(made) };
      }}
      close={close}
    />
  );
}
