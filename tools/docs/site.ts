/**
 * Builds the documents as static pages with a search, without requests of other hosts. They work
 * at any path of a server and from a folder.
 *
 * Guarantees that each link leads to a page, file or heading that is there. Otherwise it throws.
 */
import { globSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { build } from "esbuild";
import { version } from "../../src/version.ts";
import { type ApiDocument, readApiDocuments } from "./api-documents.ts";
import { type Article, articleOf, escapeHtml, plainText } from "./markdown.ts";
import { type NavigationGroup, navigationOf } from "./navigation.ts";
import { referenceOf } from "./reference.ts";
import type { Searched } from "./search-index.ts";

const root = path.join(import.meta.dirname, "../..");

/** Files of these folders are in the repository alone, so links to them are text. */
const repositoryOnly = /^(?:src|test|bench|tools|node_modules)\//;
const isImage = (file: string) => /\.(?:png|svg)$/.test(file);

/** Returns the Markdown files of the site, by their paths in the repository. */
export function documentFiles(): string[] {
  return globSync(["*.md", "docs/**/*.md", "examples/*.md"], { cwd: root }).toSorted();
}

/** Returns the path of the page of a file: `docs/operating/README.md` is operating/index.html. */
export function pageOf(file: string): string {
  const short = file.replace(/^docs\//, "");
  if (isImage(file)) return short;
  return short.endsWith(".md")
    ? short.replace(/(?:(^|\/)README)?\.md$/, (_, slash) =>
        slash === undefined ? ".html" : `${slash}index.html`,
      )
    : `${short}.html`;
}

function isFileOfRoot(file: string): boolean {
  return statSync(path.join(root, file), { throwIfNoEntry: false })?.isFile() === true;
}

/** Returns the URL of a page for another one. */
function relativeUrl(from: string, to: string): string {
  return path.relative(path.dirname(from), to);
}

export async function buildSite(folder: string): Promise<void> {
  const texts = new Map(documentFiles().map((file) => [file, readFileSync(path.join(root, file), "utf8")]));
  const apis: Record<string, ApiDocument> = { ...(await readApiDocuments()) };
  for (const [name, api] of Object.entries(apis)) {
    for (const [page, text] of referenceOf(api)) texts.set(`docs/api/${name}/${page}`, text);
  }
  await buildPages(folder, texts);
}

/** `texts`: Markdown by its path in the repository. */
export async function buildPages(folder: string, texts: ReadonlyMap<string, string>): Promise<void> {
  await new Site(folder, texts).write();
}

class Site {
  readonly #folder: string;
  readonly #texts: ReadonlyMap<string, string>;
  readonly #articles = new Map<string, Article>();
  readonly #navigation: NavigationGroup[];
  /** Links of the documents: the target as it is written, and what it means. */
  readonly #links: { from: string; target: string; file: string; anchor: string }[] = [];

  constructor(folder: string, texts: ReadonlyMap<string, string>) {
    this.#folder = folder;
    this.#texts = texts;
    for (const [file, text] of texts) {
      this.#articles.set(
        file,
        articleOf(text, (target) => this.#urlOf(file, target)),
      );
    }
    this.#navigation = navigationOf(texts, (file) => this.#titleOf(file));
  }

  async write(): Promise<void> {
    for (const file of this.#checkLinks()) this.#writeLinked(file);
    for (const [file, article] of this.#articles) this.#writeDocument(file, article);
    this.#put("assets/search-data.js", `window.searched=${JSON.stringify(this.#searched())};\n`);
    this.#put("assets/icon.svg", readFileSync(path.join(root, "src/web/shared/icon.svg")));
    await build({
      entryPoints: [
        path.join(import.meta.dirname, "browser/search.ts"),
        path.join(import.meta.dirname, "style.css"),
      ],
      outdir: path.join(this.#folder, "assets"),
      entryNames: "[name]",
      bundle: true,
      minify: true,
      // Pages that are opened from a folder may not load modules.
      format: "iife",
      target: "es2022",
      logLevel: "silent",
    });
  }

  /** Returns the linked files that are no documents. Throws if a target is missing. */
  #checkLinks(): Set<string> {
    const linked = new Set<string>();
    const problems: string[] = [];
    for (const { from, target, file, anchor } of this.#links) {
      const article = this.#articles.get(file);
      const isFile = article === undefined && isFileOfRoot(file);
      if (isFile) linked.add(file);
      const isThere =
        anchor === "" ? isFile || article !== undefined : article?.sections.some(({ id }) => id === anchor);
      if (!isThere) problems.push(`${from} links to ${target}, which does not exist`);
    }
    for (const { file } of this.#navigation.flatMap(({ links }) => links)) {
      if (!this.#texts.has(file)) problems.push(`the sidebar links to ${file}, which does not exist`);
    }
    if (problems.length > 0) throw new Error(problems.join("\n"));
    return linked;
  }

  #searched(): Searched[] {
    return [...this.#articles].flatMap(([file, { title: page, sections }]) =>
      sections.map(({ id, level, title, html }) => ({
        id: level === 1 ? pageOf(file) : `${pageOf(file)}#${id}`,
        page,
        title,
        text: plainText(html),
      })),
    );
  }

  #writeDocument(file: string, { title, html, sections }: Article): void {
    const headings = sections.filter(({ level }) => level === 2);
    const contents = headings.length < 2 ? "" : contentsOf(headings);
    this.#put(pageOf(file), this.#frame(file, title, html, contents));
  }

  /** Text files stand on a page of their own. */
  #writeLinked(file: string): void {
    const content = readFileSync(path.join(root, file));
    const html = `<h1>${file}</h1>\n<pre tabindex="0"><code>${escapeHtml(String(content))}</code></pre>`;
    this.#put(pageOf(file), isImage(file) ? content : this.#frame(file, file, html, ""));
  }

  /** Returns the URL of a link of a document, or null if nothing is there in an installation. */
  #urlOf(from: string, target: string): string | null {
    if (/^(?:https?|mailto):/.test(target)) return target;
    const [name = "", anchor = ""] = target.split("#");
    const named = name === "" ? from : path.join(path.dirname(from), name);
    const folder = path.join(named, "README.md");
    const file = this.#texts.has(folder) ? folder : named;
    if (repositoryOnly.test(file)) return null;
    this.#links.push({ from, target, file, anchor });
    const url = name === "" ? "" : relativeUrl(pageOf(from), pageOf(file));
    return anchor === "" ? url : `${url}#${anchor}`;
  }

  #frame(file: string, title: string, article: string, contents: string): string {
    const page = pageOf(file);
    const base = "../".repeat(page.split("/").length - 1);
    return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(file === "README.md" ? "Inkwell" : `${title} · Inkwell`)}</title>
<link rel="icon" href="${base}assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="${base}assets/style.css">
<script defer src="${base}assets/search.js"></script>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>
<a class="brand" href="${base}index.html">Inkwell <span>${version}</span></a>
<search>
<input type="search" id="search" data-base="${base}" placeholder="Search ( / )" aria-label="Search the documents" autocomplete="off" hidden>
<p id="count" role="status"></p>
<ol id="found"></ol>
</search>
<a class="to-pages" href="#pages">Pages</a>
</header>
<div class="columns">
<main id="content">
${contents}${article}</main>
<nav id="pages" aria-label="Pages">
${this.#sidebar(file)}</nav>
</div>
</body>
</html>
`;
  }

  #sidebar(current: string): string {
    const item = (file: string, label: string, anchor = "") => {
      const url = relativeUrl(pageOf(current), pageOf(file)) + (anchor && `#${anchor}`);
      const mark = file === current && anchor === "" ? ' aria-current="page"' : "";
      return `<li><a href="${url}"${mark}>${escapeHtml(label)}</a>`;
    };
    const groups = this.#navigation.map(({ title, links }) => {
      const items = links.map(({ file, anchor, label }) => {
        const below = anchor === "" ? this.#below(file, current) : [];
        const inner = below.map((each) => `${item(each, this.#shortTitle(each))}</li>`);
        return `${item(file, label, anchor)}${inner.length > 0 ? `<ul>${inner.join("")}</ul>` : ""}</li>`;
      });
      return `<h2>${title}</h2>\n<ul>${items.join("\n")}</ul>\n`;
    });
    return groups.join("");
  }

  /** The decisions, or the parts of an API, while one of them is shown. */
  #below(index: string, current: string): string[] {
    const folder = path.dirname(index);
    const isOpen = /^docs\/(?:decisions|api\/\w+)$/.test(folder) && path.dirname(current) === folder;
    return isOpen
      ? [...this.#texts.keys()].filter((file) => path.dirname(file) === folder && file !== index)
      : [];
  }

  #titleOf(file: string): string {
    return this.#articles.get(file)?.title ?? file;
  }

  #shortTitle(file: string): string {
    return this.#titleOf(file).replace(/^Inkwell \w+ API: |^\d{4}\. /, "");
  }

  #put(page: string, content: string | Uint8Array): void {
    const file = path.join(this.#folder, page);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, content);
  }
}

function contentsOf(headings: readonly { id: string; title: string }[]): string {
  const items = headings.map(({ id, title }) => `<li><a href="#${id}">${escapeHtml(title)}</a></li>`);
  return `<details class="contents"><summary>On this page</summary><ul>${items.join("")}</ul></details>\n`;
}
