/** A menu: what opens at a button. A click elsewhere, Escape and each choice close it. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Menu(props: { title: ComponentChildren; class?: string; children: ComponentChildren }) {
  const details = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event) => {
      const isEscape = event instanceof KeyboardEvent && event.key === "Escape";
      const isElsewhere =
        event.type === "click" &&
        details.current?.contains(event.target instanceof Node ? event.target : null) === false;
      if (details.current !== null && (isEscape || isElsewhere)) details.current.open = false;
    };
    const listening = new AbortController();
    addEventListener("click", close, { signal: listening.signal });
    addEventListener("keydown", close, { signal: listening.signal });
    return () => listening.abort();
  }, []);
  return (
    <details class={`menu ${props.class ?? ""}`} ref={details}>
      <summary>{props.title}</summary>
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: the buttons inside take the keys */}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: it only notices clicks on buttons */}
      <div
        onClick={({ target }) => {
          const isChoice = target instanceof Element && target.closest("button") !== null;
          if (details.current === null || !isChoice) return;
          details.current.open = false;
          // The dialog gives the focus back to it.
          details.current.querySelector("summary")?.focus();
        }}
      >
        {props.children}
      </div>
    </details>
  );
}
