/** Groups of the sidebar: those of docs/operating/README.md, and around them the other pages. */
import path from "node:path";

interface NavigationLink {
  /** The document, and one of its headings. */
  file: string;
  anchor: string;
  label: string;
}

export interface NavigationGroup {
  title: string;
  links: NavigationLink[];
}

const operating = "docs/operating/README.md";

/** `texts`: documents by their files. */
export function navigationOf(
  texts: ReadonlyMap<string, string>,
  titleOf: (file: string) => string,
): NavigationGroup[] {
  const link = (file: string, anchor = "", label = titleOf(file)): NavigationLink => ({
    file,
    anchor,
    label,
  });
  const groups: NavigationGroup[] = [
    { title: "Inkwell", links: [link("README.md", "", "Overview"), link(operating)] },
  ];
  const [, ...sections] = (texts.get(operating) ?? "").split(/^## /m);
  for (const section of sections) {
    const links = [...section.matchAll(/^\| \[[^\]]+\]\(([^)#]+)(?:#([^)]+))?\)/gm)].map(
      ([, name = "", anchor = ""]) => {
        const label = anchor === "" ? undefined : anchor.charAt(0).toUpperCase() + anchor.slice(1);
        return link(path.join(path.dirname(operating), name), anchor, label?.replaceAll("-", " "));
      },
    );
    groups.push({ title: section.split("\n")[0] ?? "", links });
  }
  const files = [...texts.keys()];
  const reference = files.filter((file) => /^(?:docs\/[^/]+|examples\/README)\.md$/.test(file));
  const apis = files.filter((file) => /^docs\/api\/\w+\/README\.md$/.test(file));
  const project = files.filter((file) => /^[A-Z]+\.md$/.test(file) && file !== "README.md");
  return [
    ...groups,
    { title: "Reference", links: [...reference, ...apis].map((file) => link(file)) },
    { title: "Project", links: [...project, "docs/decisions/README.md"].map((file) => link(file)) },
  ];
}
