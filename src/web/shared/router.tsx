/** Places of the pages, by the History API. Reloading a path opens the same page. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { paths } from "./paths.ts";
import { dayAfter, today } from "./times.ts";

const changed = "inkwell-place";

export interface Place {
  /** Decoded parts of the path below the first page. */
  parts: string[];
  query: URLSearchParams;
}

function placeNow(): Place {
  const path = location.pathname.slice(paths.pages.length);
  const parts = path.split("/").filter((part) => part !== "");
  return { parts: parts.map(decoded), query: new URLSearchParams(location.search) };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function usePlace(): Place {
  const [place, setPlace] = useState(placeNow);
  useEffect(() => {
    const update = () => setPlace(placeNow());
    const listening = new AbortController();
    addEventListener("popstate", update, { signal: listening.signal });
    addEventListener(changed, update, { signal: listening.signal });
    return () => listening.abort();
  }, []);
  return place;
}

/** Returns the path of a page: `pathTo("accounts", id)`. */
export function pathTo(...parts: string[]): string {
  // An empty path would be the present one.
  return [paths.pages, ...parts.map(encodeURIComponent)].join("/") || "/";
}

export function go(path: string, replace = false): void {
  if (replace) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
  dispatchEvent(new Event(changed));
}

/** Returns the present path with other query parameters. Null and "" remove a parameter. */
export function withParameters(changes: Readonly<Record<string, string | null>>): string {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  // A path that begins with two slashes would be another host.
  const path = location.pathname.replace(/^\/+/, "/");
  return query.size === 0 ? path : `${path}?${query}`;
}

export function Link(props: {
  to: string;
  class?: string | undefined;
  current?: boolean;
  children: ComponentChildren;
}) {
  const open = (event: MouseEvent) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(props.to);
    scrollTo(0, 0);
  };
  return (
    <a
      href={props.to}
      class={props.class ?? ""}
      aria-current={props.current ? "page" : undefined}
      onClick={open}
    >
      {props.children}
    </a>
  );
}

/** A day in the path of a page; null if it is missing or does not exist. */
function dayAt(place: Place, name: string): string | null {
  const date = place.query.get(name) ?? "";
  return Number.isNaN(Date.parse(date)) ? null : dayAfter(date, 0);
}

/** The period of a page: days, `to` exclusive. */
export function usePeriod(place: Place, daysBefore: number): { from: string; to: string } {
  const from = dayAt(place, "from") ?? today(1 - daysBefore);
  const to = dayAt(place, "to") ?? today(1);
  return { from, to };
}

/** As `usePeriod`. With `from=all` in the path, `from` is null, and so is `to` if it is missing. */
export function useOpenPeriod(place: Place, daysBefore: number): { from: string | null; to: string | null } {
  const period = usePeriod(place, daysBefore);
  return place.query.get("from") === "all" ? { from: null, to: dayAt(place, "to") } : period;
}
