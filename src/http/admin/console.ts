/**
 * `/console`: the pages for operators. They contain no data and load without a session; their
 * scripts read everything from `/admin`, with the rights of whoever signs in.
 *
 * The Content-Security-Policy allows scripts, styles and requests of this listener only.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { unknownPath } from "./refusals.ts";

export interface PageFile {
  contentType: string;
  body: Buffer;
  gzip: Buffer;
}

export interface ConsoleFiles {
  /** The same for every path below `/console`. */
  index: PageFile;
  /** By name. A name contains the hash of the content, and so the content never changes. */
  assets: ReadonlyMap<string, PageFile>;
}

/** Returns the files of the pages. Throws a `Refusal` if they are missing. */
export type ReadConsole = () => Promise<ConsoleFiles>;

export const consolePaths = ["/console", "/console/", "/console/*", "/console/assets/:file"] as const;

const securityHeaders = {
  "content-security-policy": [
    "default-src 'none'",
    ...["script-src", "style-src", "connect-src", "img-src"].map((directive) => `${directive} 'self'`),
    ...["base-uri", "form-action", "frame-ancestors"].map((directive) => `${directive} 'none'`),
  ].join("; "),
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
};

export function consoleRoutes(app: FastifyInstance, readConsole: ReadConsole): void {
  const [root, rootWithSlash, page, asset] = consolePaths;
  const sendIndex = async (request: FastifyRequest, reply: FastifyReply) =>
    send(request, reply, (await readConsole()).index, "no-cache");
  for (const path of [root, rootWithSlash, page]) app.get(path, sendIndex);
  app.get<{ Params: { file: string } }>(asset, async (request, reply) => {
    const file = (await readConsole()).assets.get(request.params.file);
    if (file === undefined) throw unknownPath();
    return send(request, reply, file, "public, max-age=31536000, immutable");
  });
}

function send({ headers }: FastifyRequest, reply: FastifyReply, file: PageFile, cacheControl: string) {
  const accepted = String(headers["accept-encoding"] ?? "").split(",");
  const takesGzip = accepted.some((coding) => /^\s*gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*$)|$)/i.test(coding));
  reply.headers({ ...securityHeaders, "cache-control": cacheControl, vary: "accept-encoding" });
  if (takesGzip) reply.header("content-encoding", "gzip");
  return reply.type(file.contentType).send(takesGzip ? file.gzip : file.body);
}
