/**
 * The search of the documents. It loads its data when it is first used, as a script, because pages
 * that are opened from a folder may not fetch.
 */
import { type Searched, searchOf } from "../search-index.ts";

declare global {
  interface Window {
    /** Set by search-data.js. */
    searched?: Searched[];
  }
}

const shownMax = 12;
const textBefore = 60;
const textLength = 180;

const field = document.querySelector<HTMLInputElement>("#search");
const list = document.querySelector<HTMLElement>("#found");
const count = document.querySelector<HTMLElement>("#count");
if (field !== null && list !== null && count !== null) start(field, list, count);

function start(input: HTMLInputElement, results: HTMLElement, status: HTMLElement): void {
  const base = input.dataset.base ?? "";
  let loading: Promise<(words: string) => Searched[]> | null = null;
  const show = async () => {
    const words = input.value.trim();
    if (words !== "") loading ??= load(`${base}assets/search-data.js`);
    const found = words === "" || loading === null ? [] : (await loading)(words);
    // Somebody has typed on meanwhile.
    if (words !== input.value.trim()) return;
    results.replaceChildren(...found.slice(0, shownMax).map((each) => itemOf(each, words, base)));
    status.textContent = words === "" ? "" : `${found.length === 0 ? "Nothing" : found.length} found`;
  };
  const update = () => {
    show().catch((error: Error) => {
      loading = null;
      status.textContent = error.message;
    });
  };
  input.hidden = false;
  input.addEventListener("input", update);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && input.value !== "") {
      input.value = "";
      update();
    } else if (event.key === "/" && !(event.target instanceof HTMLInputElement)) {
      event.preventDefault();
      input.focus();
    }
  });
}

function load(url: string): Promise<(words: string) => Searched[]> {
  const { promise, resolve, reject } = Promise.withResolvers<(words: string) => Searched[]>();
  const script = document.createElement("script");
  script.src = url;
  script.addEventListener("load", () => resolve(searchOf(window.searched ?? [])));
  script.addEventListener("error", () => reject(new Error("The data of the search cannot be loaded.")));
  document.head.append(script);
  return promise;
}

function itemOf({ id, page, title, text }: Searched, words: string, base: string): HTMLElement {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = `${base}${id}`;
  link.textContent = page === title ? page : `${page}: ${title}`;
  const at = text.toLowerCase().indexOf(words.toLowerCase().split(/\s+/)[0] ?? "");
  const from = Math.max(0, at - textBefore);
  const excerpt = document.createElement("p");
  excerpt.textContent = `${from > 0 ? "… " : ""}${text.slice(from, from + textLength)}`;
  item.append(link, excerpt);
  return item;
}
