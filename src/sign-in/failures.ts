/**
 * Why an answer of the issuer is not believed, as one line for the log of the operator. The line
 * has codes and messages of the library, and never a token, a code or a claim.
 */
import { messageOf } from "../errors.ts";
import { visibleLine } from "../visible-text.ts";
import { IssuerAwayError } from "./bounded-fetch.ts";

const charactersMax = 300;
const causesMax = 4;

/** The answer of the issuer is invalid, or is not for this sign-in. */
export class RejectedAnswerError extends Error {
  override readonly name = "RejectedAnswerError";
}

/** Returns the error and its causes. */
function chainOf(error: unknown): Error[] {
  const chain: Error[] = [];
  for (let at = error; at instanceof Error && chain.length < causesMax; at = at.cause) chain.push(at);
  return chain;
}

/** Whether the issuer does not answer, or fails itself. */
export function isAway(error: unknown): boolean {
  return chainOf(error).some((each) => each instanceof IssuerAwayError);
}

/** Whether the issuer refuses the client id or the client secret. */
export function isClientRefused(error: unknown): boolean {
  return chainOf(error).some((each) => ["invalid_client", "unauthorized_client"].includes(oauthCodeOf(each)));
}

/** The `error` of an answer of OAuth, or that of its header `www-authenticate`. */
function oauthCodeOf(error: Error): string {
  if ("error" in error && typeof error.error === "string") return error.error;
  // A refusal of the client with a challenge has its code in the body alone.
  return error.name === "WWWAuthenticateChallengeError" ? "invalid_client" : "";
}

export function reasonOf(error: unknown): string {
  const parts = chainOf(error).map((each) => {
    const described = "error_description" in each ? each.error_description : undefined;
    const details = [oauthCodeOf(each), described].filter((text) => typeof text === "string" && text !== "");
    return [messageOf(each), ...details].join(": ");
  });
  const text = parts.length === 0 ? messageOf(error) : [...new Set(parts)].join(": ");
  return visibleLine(text.slice(0, charactersMax));
}
