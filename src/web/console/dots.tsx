/** How far some people have come: one dot for each, and the numbers as text. */
import type { ComponentChildren } from "preact";

/** More people are shown as numbers alone. */
const dotsMax = 400;

interface DotsProps {
  counts: readonly (readonly [kind: string, count: number, title: string])[];
  /** Before the numbers. */
  children?: ComponentChildren;
}

export function Dots({ counts, children }: DotsProps) {
  const text = counts.flatMap(([, count, title]) => (count > 0 ? `${count} ${title}` : [])).join(", ");
  const dots = counts.flatMap(([kind, count]) => Array.from({ length: count }, () => kind));
  return (
    <>
      <p>
        {children}
        {text}.
      </p>
      {dots.length <= dotsMax && (
        <div class="seats" role="img" aria-label={text}>
          {dots.map((kind, n) => (
            <i key={n} class={kind} />
          ))}
        </div>
      )}
    </>
  );
}
