/** Light, dark or as the system has it. The choice is kept in this browser. */

import { useState } from "preact/hooks";
import { Options } from "./options.tsx";

const themes = ["system", "light", "dark"] as const;
type Theme = (typeof themes)[number];

const name = "inkwell-theme";

function chosen(): Theme {
  try {
    return themes.find((theme) => theme === localStorage.getItem(name)) ?? "system";
  } catch {
    // Storage can be forbidden; then the system decides.
    return "system";
  }
}

export function applyTheme(theme = chosen()): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function keep(theme: Theme): void {
  try {
    localStorage.setItem(name, theme);
  } catch {
    // The choice then lasts as long as this page.
  }
}

export function ThemeSwitch() {
  const [theme, setTheme] = useState(chosen);
  return (
    <label class="theme">
      <span>Theme</span>
      <select
        value={theme}
        onChange={({ currentTarget }) => {
          const next = themes.find((each) => each === currentTarget.value) ?? "system";
          setTheme(next);
          keep(next);
          applyTheme(next);
        }}
      >
        <Options of={themes} />
      </select>
    </label>
  );
}
