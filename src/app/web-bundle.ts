/**
 * The files of the pages of the console and the portal. A package contains them in the folder
 * `web` beside `app`. A checkout has their sources in that folder: they are bundled in memory when
 * a page is first opened, and again after a source has changed. The documents are pages after
 * `npm run docs`, which a package has done.
 */
import { copyFile, mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { basename, extname, join, relative } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { messageOf, Refusal } from "../errors.ts";
import type { PageFile, ReadDocuments, ReadWebFiles, WebFiles } from "../http/web-files.ts";
import { inkwell } from "../invocation.ts";

const contentTypes: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".woff2": "font/woff2",
};

const webFolder = join(import.meta.dirname, "../web");
/** The same folder for a checkout and for a package. */
const documentsFolder = join(import.meta.dirname, "../../dist/docs-site");

/**
 * Sets of pages, each with an HTML file of its own. `pages` and `api`: path of the first page and
 * path of the API, without a slash at the end. `hasCommands`: the pages name commands for
 * operators.
 */
const webApps = {
  console: {
    title: "Inkwell console",
    pages: "/console",
    api: "/admin",
    withoutScripts:
      "The console needs JavaScript. The command line and the operator API do the same without it.",
    hasCommands: true,
  },
  portal: {
    title: "Inkwell",
    pages: "",
    api: "/api",
    withoutScripts: "These pages need JavaScript. The API does the same without it.",
    hasCommands: false,
  },
} as const;

type WebAppName = keyof typeof webApps;
export const webAppNames = ["console", "portal"] as const satisfies WebAppName[];

const indexName = "index.html";
/** Filled when the file is read. */
const emptyCommand = 'data-command=""';
const compress = promisify(gzip);

/** A file of the bundle: `index.html`, or a name that contains the hash of the content. */
interface BundledFile {
  name: string;
  content: Uint8Array;
}

/** `folder`: for tests. */
export function webFiles(app: WebAppName, folder = webFolder): ReadWebFiles {
  return keptByTimes(
    folder,
    () => readAppFiles(app, folder),
    (error) => missing(app, messageOf(error)),
  );
}

/** What the operator listener serves without a session. */
export function operatorFiles() {
  return { readConsole: webFiles("console"), readDocuments: documents() };
}

/** The documents as pages, by their paths. */
export function documents(folder = documentsFolder): ReadDocuments {
  const read = async () => {
    const entries = await readdir(folder, { recursive: true, withFileTypes: true });
    const files = entries
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name));
    return new Map(
      await Promise.all(
        files.map(
          async (file) => [relative(folder, file), await pageFile(file, await readFile(file))] as const,
        ),
      ),
    );
  };
  return keptByTimes(
    folder,
    read,
    (error) =>
      new Refusal(
        "unknown_path",
        "The documents have no pages here yet. In a checkout, npm run docs makes them.",
        { detail: messageOf(error) },
      ),
  );
}

/**
 * Reads again when a file of the folder has changed. Simultaneous readers share one reading. A
 * failure is not kept.
 */
function keptByTimes<T>(
  folder: string,
  read: () => Promise<T>,
  explain: (error: unknown) => Refusal,
): () => Promise<T> {
  let last: { stamp: string; files: Promise<T> } | null = null;
  return async () => {
    const stamp = await stampOf(folder).catch((error: unknown) => {
      throw explain(error);
    });
    if (last?.stamp === stamp) return last.files;
    const files = read().catch((error: unknown) => {
      if (last === mine) last = null;
      throw explain(error);
    });
    const mine = { stamp, files };
    last = mine;
    return files;
  };
}

/** Changes with each file of the folder. */
async function stampOf(folder: string): Promise<string> {
  const names = (await readdir(folder, { recursive: true })).sort();
  const times = await Promise.all(names.map(async (name) => (await stat(join(folder, name))).mtimeMs));
  return names.map((name, index) => `${name} ${times[index]}`).join("\n");
}

async function readAppFiles(app: WebAppName, folder: string): Promise<WebFiles> {
  const built = join(folder, app);
  const names = await readdir(built);
  const files = names.includes(indexName)
    ? await Promise.all(
        [indexName, ...(await readdir(join(built, "assets"))).map((name) => join("assets", name))].map(
          async (name) => ({ name: basename(name), content: await readFile(join(built, name)) }),
        ),
      )
    : await bundleWeb(app, folder);
  const pages = new Map<string, PageFile>();
  for (const { name, content } of files) {
    const body = name === indexName ? withCommand(content) : Buffer.from(content);
    pages.set(name, await pageFile(name, body));
  }
  const index = pages.get(indexName);
  if (index === undefined) throw new Error(`${indexName} is missing in ${built}`);
  pages.delete(indexName);
  return { index, assets: pages };
}

async function pageFile(name: string, body: Buffer): Promise<PageFile> {
  const contentType = contentTypes[extname(name)] ?? "application/octet-stream";
  return { contentType, body, gzip: await compress(body, { level: 9 }) };
}

/** Its copies need it. */
const fontLicense = "inter.license";

/** Writes the pages as a package has them: into this folder, beside `app`. */
export async function buildWeb(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  await copyFile(join(webFolder, "shared", fontLicense), join(folder, fontLicense));
  for (const app of webAppNames) {
    await mkdir(join(folder, app, "assets"), { recursive: true });
    for (const { name, content } of await bundleWeb(app)) {
      await writeFile(join(folder, app, name === indexName ? name : join("assets", name)), content);
    }
  }
}

/** Bundles the sources of the pages. esbuild and their libraries are development dependencies. */
export async function bundleWeb(app: WebAppName, folder = webFolder): Promise<BundledFile[]> {
  const { build } = await import("esbuild");
  const { outputFiles } = await build({
    entryPoints: [`${app}/main.tsx`, "shared/style.css", "shared/icon.svg"].map((name) => join(folder, name)),
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
    jsx: "automatic",
    jsxImportSource: "preact",
    loader: { ".svg": "copy", ".woff2": "file" },
    entryNames: "[name]-[hash]",
    assetNames: "[name]-[hash]",
    outdir: "/",
    logLevel: "silent",
  });
  const files = outputFiles.map(({ path, contents }) => ({ name: basename(path), content: contents }));
  const pathOf = (ending: string) =>
    `${webApps[app].pages}/assets/${files.find(({ name }) => name.endsWith(ending))?.name}`;
  const index = indexOf(webApps[app], pathOf);
  return [...files, { name: indexName, content: Buffer.from(index) }];
}

/** `pathOf`: the file with this ending. The font is asked for before the style names it. */
function indexOf(app: (typeof webApps)[WebAppName], pathOf: (ending: string) => string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${app.title}</title>
<link rel="icon" href="${pathOf(".svg")}" type="image/svg+xml">
<link rel="preload" href="${pathOf(".woff2")}" as="font" type="font/woff2" crossorigin>
<link rel="stylesheet" href="${pathOf(".css")}">
<script type="module" src="${pathOf(".js")}"></script>
</head>
<body>
<div id="root" data-pages="${app.pages}" data-api="${app.api}"${app.hasCommands ? ` ${emptyCommand}` : ""}></div>
<noscript>${app.withoutScripts}</noscript>
</body>
</html>
`;
}

/** Writes into the page how a person calls this program, which a build does not know. */
function withCommand(index: Uint8Array): Buffer {
  const command = inkwell().replace(/["&<>]/g, (character) => `&#${character.charCodeAt(0)};`);
  const text = Buffer.from(index).toString();
  return Buffer.from(text.replace(emptyCommand, () => `data-command="${command}"`));
}

function missing(app: WebAppName, cause: string): Refusal {
  return new Refusal(
    "internal_error",
    `The pages of the ${app} cannot be read: ${cause} In a checkout, run: npm ci. For a package, run: npm run build.`,
  );
}
