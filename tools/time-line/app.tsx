/** The page: a history from the address, its examples, the picture, and what stands below it. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { distanceOf, dragFrom } from "./drag.ts";
import { examples } from "./examples.ts";
import { Grants } from "./grants.tsx";
import {
  countOf,
  type Event,
  type EventKind,
  HashError,
  type History,
  hashOf,
  historyIn,
  named,
  newEvent,
  quartersMax,
  timeText,
  within,
  without,
} from "./history.ts";
import { Lanes, shareOf } from "./lanes.tsx";
import { Balance, Facts, Selected } from "./panels.tsx";
import { play } from "./play.ts";
import { stripsOf } from "./strips.ts";

interface Page {
  history: History;
  /** The example from which the history was made. */
  example: string | null;
  /** Why the address cannot be read. */
  problem: string | null;
}

function pageOf(address: string): Page {
  // Mail programs and chats may write “,” as “%2C”.
  const text = address.replace(/^#/, "").replace(/%[0-7][\da-f]/gi, decodeURIComponent);
  const hash = text || (examples[0]?.hash ?? "");
  const example = examples.find((each) => each.hash === hash)?.title ?? null;
  try {
    return { history: historyIn(hash), example, problem: null };
  } catch (error) {
    if (!(error instanceof HashError)) throw error;
    return { history: { events: [], cursor: 0, selected: null }, example: null, problem: error.message };
  }
}

/** Browsers limit how often a page may change its address. */
const addressDelayMs = 300;

export function App() {
  const [page, setPage] = useState(() => pageOf(location.hash));
  const { history, example, problem } = page;
  const { selected } = history;
  const events = useMemo(() => named(history.events), [history.events]);
  const played = useMemo(() => play(events), [events]);
  const request = selected?.startsWith("request") ? selected : null;
  const strips = useMemo(() => stripsOf(played, request), [played, request]);

  useEffect(() => {
    const read = () => setPage(pageOf(location.hash));
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  useEffect(() => {
    if (problem !== null) return;
    const write = () => window.history.replaceState(null, "", `#${hashOf(history)}`);
    const timer = setTimeout(write, addressDelayMs);
    return () => clearTimeout(timer);
  }, [history, problem]);

  // On a narrow screen, the cursor of a new history is brought into view.
  const scroll = useRef<HTMLDivElement>(null);
  useEffect(() => scrollToCursor(scroll.current), [example]);

  const set = (changed: Partial<History>) =>
    setPage((before) => ({ ...before, history: { ...before.history, ...changed }, problem: null }));
  const select = (id: string) => set({ selected: id });
  const change = (id: string, event: Event) =>
    set({ events: events.map((each) => (each.id === id ? event : each)) });
  const remove = (id: string) => {
    const index = events.findIndex((each) => each.id === id);
    set({ events: without(events, index), selected: null });
    document.getElementById(`add-${events[index]?.kind}`)?.focus();
  };
  const add = (kind: EventKind) => {
    const added = newEvent(kind, Math.min(history.cursor, quartersMax - 1), events);
    set({ events: [...events, added], selected: `${kind}-${countOf(events, kind) + 1}` });
  };
  const move = (cursor: number) => set({ cursor: within(cursor, 0, quartersMax) });
  const shown = events.find(({ id }) => id === selected);
  return (
    <main>
      <Introduction />
      <nav class="examples" aria-label="Examples">
        {examples.map(({ title, hash }) => (
          <a key={title} href={`#${hash}`} aria-current={title === example ? "true" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      {problem !== null && (
        <p class="notice bad" role="alert">
          The address of this page is not a history. {problem} Choose an example, or add events.
        </p>
      )}
      {example !== null && <p class="look">{examples.find(({ title }) => title === example)?.look}</p>}
      <section class="card board-card" aria-label="Time line">
        <div class="scroll" ref={scroll}>
          {/* biome-ignore lint/a11y/useKeyWithClickEvents: the cursor itself moves by keys */}
          {/* biome-ignore lint/a11y/noStaticElementInteractions: the cursor itself moves by keys */}
          <div class="board" onClick={(click) => moveTo(click.target, click.clientX, move)}>
            <Axis cursor={history.cursor} move={move} />
            <Lanes {...{ events, played, selected, select, change, remove, add }} />
            <div class="row head">
              <div class="label">Grants</div>
              <Legend hasOwn={request !== null} />
            </div>
            <Grants strips={strips} cursor={history.cursor} />
            <div class="cursor-line" style={{ "--at": history.cursor / quartersMax }} />
          </div>
        </div>
      </section>
      <div class="panels">
        <Selected event={shown} payments={countOf(events, "payment")} {...{ played, change, remove }} />
        <Balance played={played} cursor={Math.min(history.cursor, quartersMax)} />
      </div>
      <Facts {...{ played, events, selected, select }} />
    </main>
  );
}

function scrollToCursor(region: HTMLElement | null): void {
  const cursor = region?.querySelector<HTMLElement>(".cursor");
  if (region == null || cursor == null) return;
  const place = cursor.getBoundingClientRect().left - region.getBoundingClientRect().left;
  region.scrollLeft += place - region.clientWidth / 2;
}

/** A click on an empty place of a track moves the cursor. */
function moveTo(target: EventTarget | null, clientX: number, move: (cursor: number) => void): void {
  if (!(target instanceof Element) || target.closest(".mark, .cursor, button") !== null) return;
  const track = target.closest(".track")?.getBoundingClientRect();
  if (track !== undefined) move(Math.round(((clientX - track.left) / track.width) * quartersMax));
}

function Introduction() {
  return (
    <header class="intro">
      <h1>A ledger to move by hand</h1>
      <p>
        Requests hold credits of grants, and spend them. Drag the events along the time line: the kernel of
        Inkwell’s ledger runs in this page, and computes the whole history again. The rules are in{" "}
        <a href="ledger.md">docs/ledger.md</a>.
      </p>
      <p class="quiet">
        The answers here are slow, so that their slices can be seen. A prompt costs 1 credit. 256 tokens take
        half an hour, and cost 4 credits. A hold that is not extended expires after two hours.
      </p>
    </header>
  );
}

function Axis({ cursor, move }: { cursor: number; move(cursor: number): void }) {
  return (
    <div class="row axis">
      <div class="label" />
      <div class="track">
        {Array.from({ length: 16 }, (_, index) => index * 12).map((quarter) => (
          <span key={quarter} class={quarter % 96 === 0 ? "day" : "hour"} style={{ left: shareOf(quarter) }}>
            {quarter % 96 === 0 ? `Day ${quarter / 96 + 1}` : `${(quarter % 96) / 4}:00`}
          </span>
        ))}
        <div
          role="slider"
          tabIndex={0}
          class="cursor"
          style={{ "--at": cursor / quartersMax }}
          aria-label="Cursor"
          aria-valuemin={0}
          aria-valuemax={quartersMax}
          aria-valuenow={cursor}
          aria-valuetext={timeText(cursor)}
          onPointerDown={(down) => dragFrom(down, (quarters) => move(cursor + quarters))}
          onKeyDown={(press) => {
            const distance = distanceOf(press.key);
            if (distance === null) return;
            move(cursor + distance);
            press.preventDefault();
          }}
        >
          {timeText(cursor)}
        </div>
      </div>
    </div>
  );
}

function Legend({ hasOwn }: { hasOwn: boolean }) {
  return (
    <p class="legend">
      <span>
        <i class="left" /> left
      </span>
      <span>
        <i class="held" /> held by requests
      </span>
      <span>
        <i class="spent" /> spent
      </span>
      {hasOwn && (
        <>
          <span>
            <i class="own held" /> held by the selected request
          </span>
          <span>
            <i class="own spent" /> spent by it
          </span>
        </>
      )}
    </p>
  );
}
