/** Makes docs/time-line.html from the sources in this folder: one file that needs no server. */
import { join } from "node:path";
import { build } from "esbuild";

/** The page, relative to the root of the repository. */
export const pageFile = "docs/time-line.html";

/** Returns the page as text. */
export async function bundlePage(): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: ["main.tsx", "style.css"].map((name) => join(import.meta.dirname, name)),
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
    platform: "browser",
    jsx: "automatic",
    jsxImportSource: "preact",
    outdir: "/",
    logLevel: "silent",
  });
  const text = (ending: string) => outputFiles.find(({ path }) => path.endsWith(ending))?.text.trim() ?? "";
  return `<!doctype html>
<!-- Made by \`npm run time-line\` from tools/time-line and src/ledger. -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="content-security-policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>Inkwell: a ledger to move by hand</title>
<style>${text(".css")}</style>
</head>
<body>
<div id="root"></div>
<noscript>This page needs JavaScript.</noscript>
<script type="module">${text(".js").replaceAll("</script", "<\\/script")}</script>
</body>
</html>
`;
}
