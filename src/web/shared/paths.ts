/** Paths of the present pages and of their API, as their HTML file gives them. */
export const rootElement = document.getElementById("root") ?? document.body;

const { pages = "", api = "" } = rootElement.dataset;

/** `/console` and `/admin`; or nothing and `/api`. */
export const paths = { pages, api };

/** Name of these pages, which ends the title of each one. */
export const appTitle = document.title;
