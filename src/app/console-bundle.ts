/**
 * The files of the console's pages. A package contains them in the folder `console` beside `app`.
 * A checkout has their sources in that folder: they are bundled in memory when a page is first
 * opened, and again after a source has changed.
 */
import { readdir, readFile, stat } from "node:fs/promises";
import { basename, extname, join } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { messageOf, Refusal } from "../errors.ts";
import type { ConsoleFiles, PageFile, ReadConsole } from "../http/admin/console.ts";

const contentTypes: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".svg": "image/svg+xml",
};

const defaultFolder = join(import.meta.dirname, "../console");
const indexName = "index.html";
const compress = promisify(gzip);

/** A file of the bundle: `index.html`, or a name that contains the hash of the content. */
interface BundledFile {
  name: string;
  content: Uint8Array;
}

/** Simultaneous readers share one bundling. A failure is not kept. */
export function consoleFiles(folder = defaultFolder): ReadConsole {
  let last: { stamp: string; files: Promise<ConsoleFiles> } | null = null;
  return async () => {
    const stamp = await stampOf(folder);
    if (last?.stamp === stamp) return last.files;
    const files = readFiles(folder).catch((error: unknown) => {
      if (last === mine) last = null;
      throw missing(messageOf(error));
    });
    const mine = { stamp, files };
    last = mine;
    return files;
  };
}

/** Changes with each source of the pages. */
async function stampOf(folder: string): Promise<string> {
  try {
    const names = (await readdir(folder, { recursive: true })).sort();
    const times = await Promise.all(names.map(async (name) => (await stat(join(folder, name))).mtimeMs));
    return names.map((name, index) => `${name} ${times[index]}`).join("\n");
  } catch (error) {
    throw missing(messageOf(error));
  }
}

async function readFiles(folder: string): Promise<ConsoleFiles> {
  const names = await readdir(folder);
  const files = names.includes(indexName)
    ? await Promise.all(
        [indexName, ...(await readdir(join(folder, "assets"))).map((name) => join("assets", name))].map(
          async (name) => ({ name: basename(name), content: await readFile(join(folder, name)) }),
        ),
      )
    : await bundleConsole(folder);
  const pages = new Map<string, PageFile>();
  for (const { name, content } of files) {
    const body = Buffer.from(content);
    const contentType = contentTypes[extname(name)] ?? "application/octet-stream";
    pages.set(name, { contentType, body, gzip: await compress(body, { level: 9 }) });
  }
  const index = pages.get(indexName);
  if (index === undefined) throw new Error(`${indexName} is missing in ${folder}`);
  pages.delete(indexName);
  return { index, assets: pages };
}

/** Bundles the sources of the pages. esbuild and their libraries are development dependencies. */
export async function bundleConsole(folder = defaultFolder): Promise<BundledFile[]> {
  const { build } = await import("esbuild");
  const { outputFiles } = await build({
    entryPoints: ["main.tsx", "style.css", "icon.svg"].map((name) => join(folder, name)),
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
    jsx: "automatic",
    jsxImportSource: "preact",
    loader: { ".svg": "copy" },
    entryNames: "[name]-[hash]",
    outdir: "/",
    logLevel: "silent",
  });
  const files = outputFiles.map(({ path, contents }) => ({ name: basename(path), content: contents }));
  const nameOf = (ending: string) =>
    `/console/assets/${files.find(({ name }) => name.endsWith(ending))?.name}`;
  const index = indexOf(nameOf(".js"), nameOf(".css"), nameOf(".svg"));
  return [...files, { name: indexName, content: Buffer.from(index) }];
}

function indexOf(script: string, style: string, icon: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Inkwell console</title>
<link rel="icon" href="${icon}" type="image/svg+xml">
<link rel="stylesheet" href="${style}">
<script type="module" src="${script}"></script>
</head>
<body>
<div id="console"></div>
<noscript>The console needs JavaScript. The command line (inkwell --help) and the operator API do the same without it.</noscript>
</body>
</html>
`;
}

function missing(cause: string): Refusal {
  return new Refusal(
    "internal_error",
    `The pages of the console cannot be read: ${cause} In a checkout, run: npm ci. For a package, run: npm run build.`,
  );
}
