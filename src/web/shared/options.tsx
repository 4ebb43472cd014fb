/** The choices of a `select`. */

/** A text stands for a choice whose value is shown. */
type Choice = string | readonly [value: string, title: string];

export function Options({ of: choices }: { of: readonly Choice[] }) {
  return choices.map((choice) => {
    const [value, title] = typeof choice === "string" ? [choice, choice] : choice;
    return (
      <option key={value} value={value}>
        {title}
      </option>
    );
  });
}
