/**
 * A history that a reader makes: events of two days, in quarters of an hour, and its text in the
 * address of the page.
 */

export const quarterMs = 900_000;
const hourQuarters = 4;
export const dayQuarters = 24 * hourQuarters;
/** The length of the time line. */
export const quartersMax = 2 * dayQuarters;

export const requestQuartersMax = dayQuarters;
export const creditsMax = 500;
const eventsMax = 40;

export const planNames = ["small", "large", "daily"] as const;
export type PlanName = (typeof planNames)[number];

export const planTimes = ["refresh", "now", "new_window"] as const;
export type PlanTime = (typeof planTimes)[number];

/** Times and lengths are quarters of an hour. */
interface Events {
  request: { at: number; length: number };
  crash: { at: number };
  plan: { at: number; plan: PlanName; when: PlanTime };
  payment: { at: number; credits: number };
  /** `payment`: the number of the payment, as they are listed. */
  refund: { at: number; credits: number; payment: number };
  /** `length`: null for a promotion without an end. */
  promotion: { at: number; credits: number; length: number | null };
}

export type EventKind = keyof Events;
export type EventOf<Kind extends EventKind> = { kind: Kind } & Events[Kind];
export type Event = { [Kind in EventKind]: EventOf<Kind> }[EventKind];

export interface History {
  events: readonly Event[];
  /** The quarter at which the page shows the balance. */
  cursor: number;
  /** The id of the event that the page shows. */
  selected: string | null;
}

export const eventTitles = {
  request: "Request",
  crash: "Crash",
  plan: "Plan change",
  payment: "Payment",
  refund: "Refund",
  promotion: "Promotion",
} as const satisfies Record<EventKind, string>;

export const eventKinds = Object.keys(eventTitles).filter(isEventKind);

function isEventKind(name: string): name is EventKind {
  return Object.hasOwn(eventTitles, name);
}

/** An event with its id, which is also the id of its operation in the ledger. */
export type NamedEvent = Event & { id: string; title: string };

/** Returns the events with ids: `request-1`, `request-2`, `crash-1` ... */
export function named(events: readonly Event[]): NamedEvent[] {
  const counts = new Map<EventKind, number>();
  return events.map((event) => {
    const number = (counts.get(event.kind) ?? 0) + 1;
    counts.set(event.kind, number);
    return { ...event, id: `${event.kind}-${number}`, title: `${eventTitles[event.kind]} ${number}` };
  });
}

/** Returns a new event of a kind. A refund is of the last payment. */
export function newEvent(kind: EventKind, at: number, events: readonly Event[]): Event {
  switch (kind) {
    case "request":
      return { kind, at: Math.min(at, quartersMax - 10), length: 10 };
    case "crash":
      return { kind, at };
    case "plan":
      return { kind, at, plan: "large", when: "now" };
    case "payment":
      return { kind, at, credits: 50 };
    case "refund":
      return { kind, at, credits: 20, payment: Math.max(1, countOf(events, "payment")) };
    case "promotion":
      return { kind, at, credits: 20, length: dayQuarters };
  }
}

export function countOf(events: readonly Event[], kind: EventKind): number {
  return events.filter((event) => event.kind === kind).length;
}

/** Moves an event within the time line. */
export function moved<E extends Event>(event: E, at: number): E {
  const length = event.kind === "request" ? event.length : 1;
  return { ...event, at: within(at, 0, quartersMax - length) };
}

/** Changes the length of a request or of a promotion with an end. */
export function resized(event: Event, length: number): Event {
  if (event.kind === "request")
    return { ...event, length: within(length, 1, Math.min(requestQuartersMax, quartersMax - event.at)) };
  if (event.kind !== "promotion" || event.length === null) return event;
  return { ...event, length: within(length, 1, quartersMax) };
}

/** Removes an event. The refunds of a removed payment go too. */
export function without(events: readonly Event[], removed: number): Event[] {
  const number = countOf(events.slice(0, removed + 1), "payment");
  const isPayment = events[removed]?.kind === "payment";
  return events.flatMap((event, index): Event[] => {
    if (index === removed) return [];
    if (!isPayment || event.kind !== "refund" || event.payment < number) return [event];
    return event.payment === number ? [] : [{ ...event, payment: event.payment - 1 }];
  });
}

export function within(value: number, min: number, max: number): number {
  return Math.max(min, Math.min(max, value));
}

/** Returns a time since the opening as hours and minutes, such as 27:15. */
export function clockText(quarters: number): string {
  const minutes = String((quarters % hourQuarters) * 15).padStart(2, "0");
  return `${Math.floor(quarters / hourQuarters)}:${minutes}`;
}

/** Returns a time for people: `day 2, 3:15`. */
export function timeText(quarters: number): string {
  return `day ${Math.floor(quarters / dayQuarters) + 1}, ${clockText(quarters % dayQuarters)}`;
}

/** Returns the text of an address: `request=10:00,5:30&crash=12:30&at=13:00&show=crash-1`. */
export function hashOf({ events, cursor, selected }: History): string {
  const parts = events.map((event) => `${event.kind}=${valuesOf(event).join(",")}`);
  const shown = selected === null ? [] : [`show=${selected}`];
  return [...parts, `at=${clockText(cursor)}`, ...shown].join("&");
}

function valuesOf(event: Event): (string | number)[] {
  const at = clockText(event.at);
  switch (event.kind) {
    case "request":
      return [at, clockText(event.length)];
    case "crash":
      return [at];
    case "plan":
      return [at, event.plan, event.when];
    case "payment":
      return [at, event.credits];
    case "refund":
      return [at, event.credits, event.payment];
    case "promotion":
      return [at, event.credits, event.length === null ? "endless" : clockText(event.length)];
  }
}

/** The text of an address is not a history. */
export class HashError extends Error {}

/** Parses the text of an address. Throws a `HashError` with a message for the reader. */
export function historyIn(hash: string): History {
  const parts = hash.split("&").map((part) => {
    const [name = "", values = "", ...more] = part.split("=");
    if (more.length > 0) throw problem(part, "it has two equals signs");
    return { part, name, values: new Values(part, values.split(",")) };
  });
  if (parts.length > eventsMax + 2) throw new HashError(`It has more than ${eventsMax} events.`);
  const events: Event[] = [];
  let cursor = 0;
  let shown: Values | null = null;
  for (const { part, name, values } of parts) {
    if (name === "show") {
      shown = values;
      continue;
    }
    if (name === "at") cursor = values.time(0, quartersMax);
    else if (isEventKind(name)) events.push(eventIn(name, values));
    else throw problem(part, `events are ${eventKinds.join(", ")}`);
    values.end();
  }
  const payments = countOf(events, "payment");
  for (const event of events) {
    if (event.kind === "refund" && event.payment > payments)
      throw new HashError(`A refund names payment ${event.payment}, and the history has ${payments}.`);
  }
  const selected = shown?.word(named(events).map(({ id }) => id)) ?? null;
  shown?.end();
  return { events, cursor, selected };
}

function eventIn(kind: EventKind, values: Values): Event {
  const at = values.time(0, quartersMax - 1);
  switch (kind) {
    case "request":
      return { kind, at, length: values.time(1, Math.min(requestQuartersMax, quartersMax - at)) };
    case "crash":
      return { kind, at };
    case "plan":
      return { kind, at, plan: values.word(planNames), when: values.word(planTimes) };
    case "payment":
      return { kind, at, credits: values.whole(creditsMax) };
    case "refund":
      return { kind, at, credits: values.whole(creditsMax), payment: values.whole(eventsMax) };
    case "promotion":
      return { kind, at, credits: values.whole(creditsMax), length: values.timeOrEndless() };
  }
}

/** The values of an event, read from left to right. */
class Values {
  readonly #part: string;
  readonly #values: string[];

  constructor(part: string, values: string[]) {
    this.#part = part;
    this.#values = values;
  }

  time(min: number, max: number): number {
    const [, hours, minutes] = /^(\d{1,2}):(00|15|30|45)$/.exec(this.#next()) ?? [];
    const quarters = Number(hours) * hourQuarters + Number(minutes) / 15;
    if (!(quarters >= min && quarters <= max)) {
      throw problem(
        this.#part,
        `times are quarters of an hour from ${clockText(min)} to ${clockText(max)}, such as 10:15`,
      );
    }
    return quarters;
  }

  timeOrEndless(): number | null {
    if (this.#values[0] !== "endless") return this.time(1, quartersMax);
    this.#values.shift();
    return null;
  }

  whole(max: number): number {
    const text = this.#next();
    if (/^[1-9]\d{0,3}$/.test(text) && Number(text) <= max) return Number(text);
    throw problem(this.#part, `numbers are whole, from 1 to ${max}`);
  }

  word<Word extends string>(words: readonly Word[]): Word {
    const text = this.#next();
    const word = words.find((each) => each === text);
    if (word === undefined) throw problem(this.#part, `choices are ${words.join(", ")}`);
    return word;
  }

  end(): void {
    if (this.#values.length > 0) throw problem(this.#part, "it has too many values");
  }

  #next(): string {
    return this.#values.shift() ?? "";
  }
}

function problem(part: string, reason: string): HashError {
  return new HashError(`“${part}” cannot be read: ${reason}.`);
}
