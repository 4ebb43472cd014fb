/** The portal: pages in which the holder of an API key sees its account. */
import { render } from "preact";
import { rootElement } from "../shared/paths.ts";
import { applyTheme } from "../shared/theme.tsx";
import { Portal } from "./portal.tsx";

applyTheme();
render(<Portal />, rootElement);
