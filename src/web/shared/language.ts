/**
 * Replaces a language of the browser that `Intl` refuses, such as that of the locale `C`. uPlot
 * gives the language to `Intl` while it is loaded, and would stop the whole page: import this
 * first.
 */
try {
  Intl.getCanonicalLocales(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-US", configurable: true });
}
