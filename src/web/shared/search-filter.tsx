/** A filter of a list that is typed, and stands in the address of the page. */
import { go, withParameters } from "./router.tsx";

export function SearchFilter({ name, label, value }: { name: string; label: string; value: string | null }) {
  return (
    <label for={name}>
      {label}
      <input
        id={name}
        type="search"
        value={value ?? ""}
        onChange={({ currentTarget }) =>
          go(withParameters({ [name]: currentTarget.value.trim(), after: null }))
        }
      />
    </label>
  );
}
