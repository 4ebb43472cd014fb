/**
 * Entity tags of states that pages ask for again and again (RFC 9110, 8.8.3 and 13.1.2). They are
 * compared weakly, because a proxy that compresses a response makes its tag a weak one.
 */
import { hash } from "node:crypto";
import type { FastifyReply, FastifyRequest } from "fastify";

/**
 * Sets the tag of the state that the parts determine. Returns whether the client has this state
 * already: the response has status 304 then, and needs no body.
 */
export function hasState(request: FastifyRequest, reply: FastifyReply, ...parts: readonly string[]): boolean {
  const tag = `"${hash("sha256", parts.join("\n"), "base64url")}"`;
  reply.header("etag", tag);
  const known = request.headers["if-none-match"]?.split(",").map((each) => each.trim().replace(/^W\//, ""));
  if (!known?.some((each) => each === tag || each === "*")) return false;
  reply.code(304);
  return true;
}
