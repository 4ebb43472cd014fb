/** Paths of the present pages and of their API, and other facts, as their HTML file gives them. */
export const rootElement = document.getElementById("root") ?? document.body;

const { pages = "", api = "", command = "" } = rootElement.dataset;

/** How an operator calls the command line of this service. */
export const commandLine = command;

/** `/console` and `/admin`; or nothing and `/api`. */
export const paths = { pages, api };

/** Name of these pages, which ends the title of each one. */
export const appTitle = document.title;
