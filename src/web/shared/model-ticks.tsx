/**
 * A field of models: a box for each with its price, and an input for patterns. Without a tick, it
 * is all of them.
 */
import { apiPath } from "./api.ts";
import type { FieldProps } from "./form-fields.ts";
import { wholeNumber } from "./numbers.ts";
import { InputGroup } from "./plain-form.tsx";
import { useGet } from "./use-loaded.ts";

interface Priced {
  id: string;
  pricing: { prompt: number; completion: number };
}

export function ModelTicks({ field, value, problem, change }: FieldProps) {
  const all = useGet<{ data: Priced[] }>(apiPath("models"));
  const ticked = value === "" ? [] : value.split(",").map((each) => each.trim());
  const priced = new Map(all.value?.data.map((model) => [model.id, model.pricing]));
  const offered = field.options?.map(([model]) => model) ?? [...priced.keys()];
  const tick = (model: string, isOn: boolean) =>
    change([...ticked.filter((each) => each !== model), ...(isOn ? [model] : [])].join(", "));
  const priceOf = (model: string) => {
    const { prompt, completion } = priced.get(model) ?? {};
    if (prompt === undefined || completion === undefined) return null;
    return <span class="quiet"> {`${wholeNumber(prompt)} / ${wholeNumber(completion)}`}</span>;
  };
  return (
    <InputGroup field={field} problem={problem}>
      {/* Also models that are gone, and patterns. */}
      {[...new Set([...offered, ...ticked])].map((model) => (
        <label key={model}>
          <input
            type="checkbox"
            checked={ticked.includes(model)}
            onChange={({ currentTarget: { checked } }) => tick(model, checked)}
          />
          {model}
          {priceOf(model)}
        </label>
      ))}
      {field.options === undefined && (
        <input
          type="text"
          aria-label={`Another of ${field.label}`}
          placeholder="another, such as big-*"
          autocomplete="off"
          onChange={({ currentTarget: input }) => {
            if (input.value.trim() !== "") tick(input.value.trim(), true);
            input.value = "";
          }}
        />
      )}
    </InputGroup>
  );
}
