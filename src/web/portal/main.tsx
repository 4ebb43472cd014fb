/** The portal: pages in which the holder of an API key, or a person, sees an account. */
import { render } from "preact";
import { takeArrival } from "../shared/arrival.ts";
import { rootElement } from "../shared/paths.ts";
import { applyTheme } from "../shared/theme.tsx";
import { Portal } from "./portal.tsx";

const arrival = takeArrival();
applyTheme();
render(<Portal arrival={arrival} />, rootElement);
