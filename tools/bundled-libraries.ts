/**
 * The libraries whose code is in the pages of a package. They are not installed with it, so their
 * licences come with the pages, and `npm run sbom` lists them.
 */
export const bundledLibraries: readonly string[] = ["marked", "minisearch", "preact"];
