/** The frame of a page: its heading, which is also the title of the document, and its sections. */
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { appTitle } from "./paths.ts";

export function PageHead(props: { title: string; children?: ComponentChildren; above?: ComponentChildren }) {
  const { title } = props;
  useEffect(() => {
    document.title = `${title} · ${appTitle}`;
  }, [title]);
  return (
    <header class="page-head">
      {props.above}
      <h1 tabIndex={-1}>{title}</h1>
      {props.children && <div class="actions">{props.children}</div>}
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
