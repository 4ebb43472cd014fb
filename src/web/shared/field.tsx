/** A field of a form, with its label, its hint and its error. */

import { useId } from "preact/hooks";
import { Button } from "./button.tsx";
import { type FieldProps, initialOf, rowsIn, shownOf, type Values, valueProblemOf } from "./form-fields.ts";
import { ModelTicks } from "./model-ticks.tsx";
import { Options } from "./options.tsx";
import { InputGroup, Notes } from "./plain-form.tsx";

export function Field(props: FieldProps) {
  const { field, value, problem, change } = props;
  const { name, label, kind = "text", hint = "", options = [], isRequired = false } = field;
  const id = useId();
  const shared = {
    id,
    name,
    value,
    "aria-invalid": problem !== null,
    "aria-describedby": `${id}-hint ${id}-error`,
    "aria-required": isRequired,
    onInput: ({ currentTarget }: { currentTarget: { value: string } }) => change(currentTarget.value),
  };
  if (kind === "models") return <ModelTicks {...props} />;
  if (kind === "rows") return <Rows {...props} />;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {kind === "select" ? (
        <select {...shared}>
          <Options of={options} />
        </select>
      ) : kind === "file" ? (
        <>
          <textarea {...shared} rows={5} wrap="off" />
          <input
            type="file"
            aria-label={`File for ${label}`}
            onChange={({ currentTarget: { files } }) => void files?.[0]?.text().then(change)}
          />
        </>
      ) : kind === "moment" ? (
        <input {...shared} type="datetime-local" />
      ) : (
        <input
          {...shared}
          type="text"
          inputMode={kind === "number" ? "numeric" : kind === "email" ? "email" : "text"}
          autocomplete="off"
        />
      )}
      <Notes id={id} hint={hint} problem={problem} />
    </div>
  );
}

/** Rows that are added and removed. Errors of their inputs stand there. */
function Rows({ field, value, problem, change }: FieldProps) {
  const { label, row = () => [], max = 1 } = field;
  const rows = rowsIn(value);
  const set = (changed: readonly Values[]) => change(JSON.stringify(changed));
  return (
    <InputGroup field={field} problem={valueProblemOf(field, value) === null ? problem : null}>
      {rows.map((values, n) => (
        <fieldset key={String(n)} class="facts" aria-label={`${label}, number ${n + 1}`}>
          {shownOf(row(values), values).map((input) => {
            const text = values[input.name] ?? "";
            return (
              <Field
                key={input.name}
                field={input}
                value={text}
                problem={problem && valueProblemOf(input, text)}
                change={(typed) => set(rows.with(n, { ...values, [input.name]: typed }))}
              />
            );
          })}
          <Button aria-label={`Remove number ${n + 1}`} onClick={() => set(rows.toSpliced(n, 1))}>
            Remove
          </Button>
        </fieldset>
      ))}
      {rows.length < max && <Button onClick={() => set([...rows, initialOf(row({}))])}>Add one</Button>}
    </InputGroup>
  );
}
