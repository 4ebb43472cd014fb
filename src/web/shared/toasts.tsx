/** Short messages after a success. Errors stand at their fields and never here. */
import { useEffect, useState } from "preact/hooks";

interface Toast {
  number: number;
  text: string;
}

const shownMs = 6000;
/** More of them would cover the page. */
const shownMax = 2;
const event = "inkwell-toast";

export function toast(text: string): void {
  dispatchEvent(new CustomEvent(event, { detail: text }));
}

export function Toasts() {
  const [toasts, setToasts] = useState<Toast[]>([]);
  useEffect(() => {
    let count = 0;
    const add = (added: Event) => {
      count += 1;
      const number = count;
      const text = added instanceof CustomEvent ? String(added.detail) : "";
      setToasts((all) => [...all, { number, text }].slice(-shownMax));
      setTimeout(() => setToasts((all) => all.filter((each) => each.number !== number)), shownMs);
    };
    addEventListener(event, add);
    return () => removeEventListener(event, add);
  }, []);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.map(({ number, text }) => (
        <p key={number}>{text}</p>
      ))}
    </div>
  );
}
