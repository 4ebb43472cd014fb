/**
 * The console: pages in which an operator sees and changes everything that the operator API has.
 * They are a client of that API and have no rights of their own.
 */
import { render } from "preact";
import { takeArrival } from "../shared/arrival.ts";
import { rootElement } from "../shared/paths.ts";
import { applyTheme } from "../shared/theme.tsx";
import { Console } from "./console.tsx";

const arrival = takeArrival();
applyTheme();
render(<Console arrival={arrival} />, rootElement);
