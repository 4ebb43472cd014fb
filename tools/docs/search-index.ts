/** What the search of the documents looks through, and how. The pages bundle it. */
import MiniSearch from "minisearch";

/** A section of a page. */
export interface Searched {
  /** Path below the first page, with the heading. */
  id: string;
  /** Title of the page. */
  page: string;
  title: string;
  text: string;
}

/** Weight of decisions and of the reference. Pages that say how to do something come first. */
const lowerWeight = 0.5;

export function searchOf(sections: readonly Searched[]): (words: string) => Searched[] {
  const byId = new Map(sections.map((section) => [section.id, section]));
  const index = new MiniSearch<Searched>({ fields: ["page", "title", "text"] });
  index.addAll(sections);
  return (words) =>
    index
      .search(words, {
        prefix: true,
        fuzzy: (term) => (term.length > 4 ? 0.2 : false),
        combineWith: "AND",
        boost: { page: 3, title: 4 },
        boostDocument: (id) => (/^(?:decisions|api\/)/.test(String(id)) ? lowerWeight : 1),
      })
      .flatMap(({ id }) => byId.get(id) ?? []);
}
