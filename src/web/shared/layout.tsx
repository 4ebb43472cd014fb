/** The frame of a page: its heading, which is also the title of the document, and its sections. */
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { appTitle } from "./paths.ts";
import { Link, pathTo } from "./router.tsx";

/** The ink drop of icon.svg with the name, which leads to the first page. */
export function Brand() {
  return (
    <Link to={pathTo()} class="brand">
      <svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true">
        <rect width="32" height="32" rx="7" fill="var(--accent)" />
        <path d="M16 5c4 5.5 7 9 7 13.5a7 7 0 0 1-14 0C9 14 12 10.5 16 5z" fill="#fff" />
      </svg>
      Inkwell
    </Link>
  );
}

interface HeadProps {
  title: string;
  children?: ComponentChildren;
  above?: ComponentChildren;
  below?: ComponentChildren;
}

export function PageHead(props: HeadProps) {
  const { title } = props;
  useEffect(() => {
    document.title = `${title} · ${appTitle}`;
  }, [title]);
  return (
    <header class="page-head">
      {props.above}
      <h1 tabIndex={-1}>{title}</h1>
      {props.children && <div class="actions">{props.children}</div>}
      {props.below && <p class="quiet">{props.below}</p>}
    </header>
  );
}

export function Card(props: { title: string; actions?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section class="card">
      <header>
        <h2>{props.title}</h2>
        {props.actions && <div class="actions">{props.actions}</div>}
      </header>
      {props.children}
    </section>
  );
}

/** One large number with its name. */
export function Figure(props: { name: string; children: ComponentChildren; note?: ComponentChildren }) {
  return (
    <div class="figure">
      <span class="name">{props.name}</span>
      <strong>{props.children}</strong>
      {props.note && <span class="quiet">{props.note}</span>}
    </div>
  );
}
