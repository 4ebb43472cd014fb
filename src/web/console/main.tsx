/**
 * The console: pages in which an operator sees and changes everything that the operator API has.
 * They are a client of that API and have no rights of their own.
 */
import { render } from "preact";
import { rootElement } from "../shared/paths.ts";
import { applyTheme } from "../shared/theme.tsx";
import { Console } from "./console.tsx";

/** Takes a sign-in code out of the address bar before anything else happens. */
function codeFromFragment(): string | null {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (location.hash !== "") history.replaceState(null, "", location.pathname + location.search);
  return code;
}

const code = codeFromFragment();
applyTheme();
render(<Console code={code} />, rootElement);
