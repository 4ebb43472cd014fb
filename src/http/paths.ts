/** The three endpoints, matched byte for byte: no trailing slash, no escapes, no other case. A query is ignored. */
import { Refusal } from "../errors.ts";

export const chatPath = "/v1/chat/completions";
export const balancePath = "/v1/balance";
export const modelsPath = "/v1/models";

const methods: ReadonlyMap<string, string> = new Map([
  [chatPath, "POST"],
  [balancePath, "GET, HEAD"],
  [modelsPath, "GET, HEAD"],
]);

/** The endpoint that a request target names, or null. Also in absolute form (`GET http://host/v1/models`), as HTTP/1.1 asks. */
export function endpointOf(target: string): string | null {
  const query = target.indexOf("?");
  let path = query === -1 ? target : target.slice(0, query);
  if (!path.startsWith("/")) path = /^https?:\/\/[^/]*(\/.*)$/i.exec(path)?.[1] ?? path;
  return methods.has(path) ? path : null;
}

/** For the headers `allow` and `access-control-allow-methods`. */
export function methodsOf(endpoint: string): string {
  return methods.get(endpoint) ?? "";
}

/** Longest piece of a target that a message repeats. */
const shownCharactersMax = 100;

export function unknownPath(target: string): Refusal {
  return new Refusal(
    "unknown_path",
    `There is nothing at ${target.slice(0, shownCharactersMax)}. There is POST ${chatPath}, GET ${balancePath} and GET ${modelsPath}.`,
  );
}

export function methodNotAllowed(endpoint: string, method: string): Refusal {
  return new Refusal(
    "method_not_allowed",
    `${endpoint} does not take ${method}, only ${methodsOf(endpoint)}.`,
  );
}
