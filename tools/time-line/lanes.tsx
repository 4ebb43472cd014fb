/** The time line: a lane for each kind of event, with marks that can be moved. */
import type { CSSProperties } from "preact";
import type { Run } from "./answer.ts";
import { distanceOf, dragFrom } from "./drag.ts";
import {
  type Event,
  type EventKind,
  type EventOf,
  eventKinds,
  eventTitles,
  moved,
  type NamedEvent,
  quartersMax,
  resized,
  timeText,
} from "./history.ts";
import type { Played } from "./play.ts";
import { eventText } from "./words.ts";

export function shareOf(quarters: number): string {
  return `${(quarters / quartersMax) * 100}%`;
}

interface LaneActions {
  select(id: string): void;
  change(id: string, event: Event): void;
  remove(id: string): void;
  add(kind: EventKind): void;
}

interface LanesProps extends LaneActions {
  events: readonly NamedEvent[];
  played: Played;
  selected: string | null;
}

export function Lanes(props: LanesProps) {
  return eventKinds.map((kind) => <Lane key={kind} kind={kind} {...props} />);
}

const rowPixels = 30;

function Lane(props: LanesProps & { kind: EventKind }) {
  const { kind, events, played, selected, add } = props;
  const own = events.filter((event) => event.kind === kind);
  const rows = rowsOf(own.map((event) => spanOf(event, played.runs.get(event.id))));
  const title = eventTitles[kind];
  return (
    <div class={`row ${kind}`}>
      <div class="label">
        <span>{kind === "crash" ? "Crashes" : `${title}s`}</span>
        <button id={`add-${kind}`} type="button" aria-label={`Add: ${title}`} onClick={() => add(kind)}>
          +
        </button>
      </div>
      <div
        class="track"
        style={{ height: `${Math.max(1, ...rows.map((row) => row + 1)) * rowPixels + 6}px` }}
      >
        {own.map((event, index) => (
          <Mark
            key={event.id}
            {...props}
            event={event}
            run={played.runs.get(event.id)}
            isSelected={selected === event.id}
            top={(rows[index] ?? 0) * rowPixels + 4}
          />
        ))}
      </div>
    </div>
  );
}

/** The most that a character of a mark takes, in quarters of an hour on the narrowest board. */
const characterQuarters = 1.7;

/** Shorter requests show their number only. */
const titleQuartersMin = 16;

/** The first and the last quarter that a mark covers. */
function spanOf(event: NamedEvent, run: Run | undefined): [number, number] {
  if (event.kind === "request")
    return [event.at, Math.max(event.at + event.length, run?.endedAt ?? 0, run?.expiredAt ?? 0)];
  const width = (shortText(event).length + 3) * characterQuarters;
  if (event.kind === "promotion") {
    const until = event.length === null ? quartersMax : event.at + event.length;
    return [event.at, Math.max(until, event.at + width)];
  }
  return isAtEnd(event) ? [event.at - width, event.at] : [event.at, event.at + width];
}

/** A mark near the end of the time line is at the left of its time. */
function isAtEnd(event: NamedEvent): boolean {
  return event.at > quartersMax - 30;
}

/** Puts spans that overlap into different rows. */
function rowsOf(spans: readonly (readonly [number, number])[]): number[] {
  const taken: [number, number][][] = [];
  return spans.map(([from, until]) => {
    const isFree = (row: [number, number][]) => row.every(([start, end]) => until <= start || end <= from);
    const found = taken.findIndex(isFree);
    const index = found === -1 ? taken.length : found;
    taken[index] = [...(taken[index] ?? []), [from, until]];
    return index;
  });
}

function shortText(event: NamedEvent): string {
  switch (event.kind) {
    case "request":
      return event.length < titleQuartersMin ? event.title.replace(/\D+/, "") : event.title;
    case "crash":
      return "crash";
    case "plan":
      return `${event.plan} ${event.when.replace("_", " ")}`;
    case "payment":
    case "promotion":
      return `+${event.credits}`;
    case "refund":
      return `−${event.credits}`;
  }
}

interface MarkProps extends LaneActions {
  event: NamedEvent;
  run: Run | undefined;
  isSelected: boolean;
  top: number;
}

function Mark({ event, run, isSelected, top, select, change, remove }: MarkProps) {
  const { id, at, kind } = event;
  const length = kind === "request" || kind === "promotion" ? event.length : null;
  const hasEnd = length !== null;
  const isLasting = kind === "request" || kind === "promotion";
  const place: CSSProperties = { top: `${top}px` };
  if (isLasting) Object.assign(place, { left: shareOf(at), width: shareOf(length ?? quartersMax - at) });
  else if (isAtEnd(event)) place.right = shareOf(quartersMax - at);
  else place.left = shareOf(at);
  return (
    <div
      role="slider"
      tabIndex={0}
      class={`mark ${isLasting ? "lasting" : "point"} ${isAtEnd(event) ? "at-end" : ""} ${run?.end ?? ""}`}
      style={place}
      data-id={id}
      data-selected={isSelected}
      aria-label={event.title}
      aria-valuemin={0}
      aria-valuemax={quartersMax}
      aria-valuenow={at}
      aria-valuetext={eventText(event)}
      onFocus={() => select(id)}
      onPointerDown={(down) => {
        dragFrom(down, (quarters) => change(id, moved(event, at + quarters)));
        down.currentTarget.focus();
      }}
      onKeyDown={(press) => {
        const distance = distanceOf(press.key);
        if (press.key === "Delete" || press.key === "Backspace") remove(id);
        else if (distance === null) return;
        else if (!press.shiftKey) change(id, moved(event, at + distance));
        else if (length !== null) change(id, resized(event, length + distance));
        press.preventDefault();
      }}
    >
      {kind === "request" && run !== undefined && <RunBar event={event} run={run} />}
      <span class="text">{shortText(event)}</span>
      {hasEnd && (
        <i
          class="end"
          onPointerDown={(down) => {
            dragFrom(down, (quarters) => change(id, resized(event, length + quarters)));
            down.currentTarget.closest<HTMLElement>("[role=slider]")?.focus();
          }}
        />
      )}
      <span class="tip">{eventText(event)}</span>
    </div>
  );
}

/** What became of the request: its slices, and where it waited, ended, died or was refused. */
function RunBar({ event, run }: { event: EventOf<"request">; run: Run }) {
  const share = (quarters: number) => `${(quarters / event.length) * 100}%`;
  const end = run.endedAt ?? quartersMax;
  const part = (name: string, from: number, until: number, title = "") => (
    <i
      key={`${name} ${from}`}
      class={name}
      title={title}
      style={{ left: share(from - event.at), width: share(until - from) }}
    />
  );
  return (
    <>
      {part("made", event.at, end)}
      {run.waited.map((quarter) => part("waited", quarter, quarter + 1))}
      {run.checkpoints.map((quarter) => part("checkpoint", quarter, quarter, timeText(quarter)))}
      {run.end === "died" && part("orphan", end, run.expiredAt ?? quartersMax)}
    </>
  );
}
