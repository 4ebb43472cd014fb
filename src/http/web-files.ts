/**
 * Serves the pages of the console or of the portal, and the documents. They contain no data and
 * load without a session; scripts read everything from the API, with the rights of whoever signs
 * in.
 *
 * The Content-Security-Policy allows scripts, styles, fonts and requests of this listener only.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

export interface PageFile {
  contentType: string;
  body: Buffer;
  gzip: Buffer;
}

export interface WebFiles {
  /** The same for every path of a page. */
  index: PageFile;
  /** By name. A name contains the hash of the content, and so the content never changes. */
  assets: ReadonlyMap<string, PageFile>;
}

/** Returns the files of the pages. Throws a `Refusal` if they are missing. */
export type ReadWebFiles = () => Promise<WebFiles>;

/** Returns the documents as pages, by their paths. Throws a `Refusal` if they are missing. */
export type ReadDocuments = () => Promise<ReadonlyMap<string, PageFile>>;

/** Returns the paths of all pages and of their assets. `base`: "/console", or "" for the root. */
export function pagePaths(base: string): readonly string[] {
  return [...(base === "" ? [] : [base]), `${base}/`, `${base}/*`, assetPath(base)];
}

const securityHeaders = {
  "content-security-policy": [
    "default-src 'none'",
    ...["script-src", "style-src", "font-src", "connect-src", "img-src"].map(
      (directive) => `${directive} 'self'`,
    ),
    ...["base-uri", "form-action", "frame-ancestors"].map((directive) => `${directive} 'none'`),
  ].join("; "),
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
};

export function pageRoutes(app: FastifyInstance, base: string, readFiles: ReadWebFiles): void {
  const asset = assetPath(base);
  for (const path of pagePaths(base)) {
    if (path === asset) continue;
    app.get(path, async (request, reply) => send(request, reply, (await readFiles()).index, "no-cache"));
  }
  app.get<{ Params: { file: string } }>(asset, async (request, reply) => {
    const file = (await readFiles()).assets.get(request.params.file);
    if (file === undefined) return reply.callNotFound();
    return send(request, reply, file, "public, max-age=31536000, immutable");
  });
}

export function documentPagePaths(base: string): readonly string[] {
  return [base, `${base}/*`];
}

export function documentPageRoutes(app: FastifyInstance, base: string, readDocuments: ReadDocuments): void {
  // Links are relative, and begin below the slash.
  app.get(base, async (_request, reply) => reply.redirect(`${base}/`));
  app.get<{ Params: { "*": string } }>(`${base}/*`, async (request, reply) => {
    const name = request.params["*"].replace(/(^|\/)$/, "$1index.html");
    const file = (await readDocuments()).get(name);
    if (file === undefined) return reply.callNotFound();
    return send(request, reply, file, "no-cache");
  });
}

function assetPath(base: string): string {
  return `${base}/assets/:file`;
}

function send({ headers }: FastifyRequest, reply: FastifyReply, file: PageFile, cacheControl: string) {
  const accepted = String(headers["accept-encoding"] ?? "").split(",");
  const takesGzip = accepted.some((coding) => /^\s*gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*$)|$)/i.test(coding));
  reply.headers({ ...securityHeaders, "cache-control": cacheControl, vary: "accept-encoding" });
  if (takesGzip) reply.header("content-encoding", "gzip");
  return reply.type(file.contentType).send(takesGzip ? file.gzip : file.body);
}
