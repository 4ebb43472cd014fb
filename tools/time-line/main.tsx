/** Shows the time line. The kernel needs `Temporal`, which old browsers lack. */
import { render } from "preact";
import { App } from "./app.tsx";

const root = document.getElementById("root");
if (root !== null) render("Temporal" in globalThis ? <App /> : <TooOld />, root);

function TooOld() {
  return (
    <main>
      <p class="notice bad">
        This page needs a browser with “Temporal”, such as Chrome 144, Edge 144 or Firefox 139, or a later
        one.
      </p>
    </main>
  );
}
