/** A field of models: a box for each with its price. Without a tick, it is all of them. */
import { useId } from "preact/hooks";
import { apiPath } from "./api.ts";
import { wholeNumber } from "./numbers.ts";
import { useGet } from "./use-loaded.ts";

interface Props {
  field: { name: string; label: string; hint?: string; options?: readonly (readonly [string, string])[] };
  value: string;
  problem: string | null;
  change(value: string): void;
}

interface Priced {
  id: string;
  pricing: { prompt: number; completion: number };
}

export function ModelTicks({ field: { name, label, hint, options }, value, problem, change }: Props) {
  const id = useId();
  const all = useGet<{ data: Priced[] }>(apiPath("models"));
  const ticked = value === "" ? [] : value.split(",").map((each) => each.trim());
  const priced = new Map(all.value?.data.map((model) => [model.id, model.pricing]));
  const offered = options?.map(([model]) => model) ?? [...priced.keys()];
  const priceOf = (model: string) => {
    const { prompt, completion } = priced.get(model) ?? {};
    if (prompt === undefined || completion === undefined) return null;
    return <span class="quiet"> {`${wholeNumber(prompt)} / ${wholeNumber(completion)}`}</span>;
  };
  return (
    <fieldset
      id={id}
      class="field"
      name={name}
      aria-invalid={problem !== null}
      aria-describedby={`${id}-hint ${id}-error`}
    >
      <legend>{label}</legend>
      {/* Also models that are gone, and patterns. */}
      {[...new Set([...offered, ...ticked])].map((model) => (
        <label key={model}>
          <input
            type="checkbox"
            checked={ticked.includes(model)}
            onChange={({ currentTarget: { checked } }) =>
              change([...ticked.filter((each) => each !== model), ...(checked ? [model] : [])].join(", "))
            }
          />
          {model}
          {priceOf(model)}
        </label>
      ))}
      <p id={`${id}-hint`} class="quiet">
        {hint}
      </p>
      <p id={`${id}-error`} class="error" role="alert">
        {problem}
      </p>
    </fieldset>
  );
}
