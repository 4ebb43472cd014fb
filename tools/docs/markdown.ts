/** Markdown of the documents as HTML, with the sections that the search finds. */
import { Marked, type Token, type Tokens } from "marked";

export interface Section {
  id: string;
  level: number;
  /** As plain text, and as HTML. */
  title: string;
  heading: string;
  /** What stands below the heading, before the next one. */
  html: string;
}

export interface Article {
  title: string;
  html: string;
  sections: Section[];
}

const escapes: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => escapes[character] ?? "");
}

/** Returns a function that makes ids of headings, in their order, as forges and editors do. */
function headingIds(): (heading: string) => string {
  const seen = new Map<string, number>();
  return (heading) => {
    const id = heading
      .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .toLowerCase()
      .replace(/[^\w\- ]/g, "")
      .replaceAll(" ", "-");
    const before = seen.get(id) ?? 0;
    seen.set(id, before + 1);
    return before === 0 ? id : `${id}-${before}`;
  };
}

function isHeading(token: Token): token is Tokens.Heading {
  return token.type === "heading";
}

/** `urlOf`: the URL for a link or an image of the page; null for a target that has none. */
export function articleOf(text: string, urlOf: (target: string) => string | null): Article {
  const marked = new Marked({
    renderer: {
      link({ href, tokens }) {
        const inner = this.parser.parseInline(tokens);
        const url = urlOf(href);
        return url === null ? inner : `<a href="${escapeHtml(url)}">${inner}</a>`;
      },
      image({ href, text: alternative }) {
        const url = urlOf(href);
        return url === null ? "" : `<img src="${escapeHtml(url)}" alt="${escapeHtml(alternative)}">`;
      },
    },
  });
  const parts: { heading: Tokens.Heading; below: Token[] }[] = [];
  for (const token of marked.lexer(text)) {
    if (isHeading(token)) parts.push({ heading: token, below: [] });
    else parts.at(-1)?.below.push(token);
  }
  const idOf = headingIds();
  const sections = parts.map(({ heading: { depth: level, text: title }, below }): Section => {
    const heading = String(marked.parseInline(title));
    const html = accessible(marked.parser(below));
    return { id: idOf(title), level, title: plainText(heading), heading, html };
  });
  const html = sections.map(
    (each) => `<h${each.level} id="${each.id}">${each.heading}</h${each.level}>\n${each.html}`,
  );
  return { title: sections[0]?.title ?? "", html: html.join(""), sections };
}

/** Wide tables and code scroll, also by keyboard. */
function accessible(html: string): string {
  return html
    .replaceAll("<table>", '<div class="table" tabindex="0" role="group" aria-label="Table"><table>')
    .replaceAll("</table>", "</table></div>")
    .replaceAll("<pre>", '<pre tabindex="0">')
    .replaceAll(/<th( align="\w+")?><\/th>/g, "<td$1></td>");
}

/** The text of HTML that this module made. */
export function plainText(html: string): string {
  return html
    .replace(/<\/?(?:a|code|em|strong)\b[^>]*>/g, "")
    .replace(/<[^>]+>/g, " ")
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replaceAll("&#39;", "'")
    .replaceAll("&amp;", "&")
    .replace(/\s+/g, " ")
    .trim();
}
