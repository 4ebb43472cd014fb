/** Moves a thing on the time line with a pointer or with the keys. */
import { dayQuarters, quartersMax } from "./history.ts";

/** Calls back with the distance in quarters of an hour, while the pointer is down. */
export function dragFrom(
  start: PointerEvent & { currentTarget: HTMLElement },
  onMove: (quarters: number) => void,
): void {
  const handle = start.currentTarget;
  const track = handle.closest(".track");
  if (start.button !== 0 || track === null) return;
  start.stopPropagation();
  handle.setPointerCapture(start.pointerId);
  const { width } = track.getBoundingClientRect();
  let last = 0;
  const move = ({ clientX }: PointerEvent) => {
    const quarters = Math.round(((clientX - start.clientX) / width) * quartersMax);
    if (quarters !== last) onMove(quarters);
    last = quarters;
  };
  handle.addEventListener("pointermove", move);
  const end = () => handle.removeEventListener("pointermove", move);
  handle.addEventListener("lostpointercapture", end, { once: true });
}

/** Returns the distance that a key moves, or null for other keys. */
export function distanceOf(key: string): number | null {
  const distances: Record<string, number> = {
    ArrowLeft: -1,
    ArrowRight: 1,
    PageDown: -4,
    PageUp: 4,
    Home: -dayQuarters,
    End: dayQuarters,
  };
  return distances[key] ?? null;
}
