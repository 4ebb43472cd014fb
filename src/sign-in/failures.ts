/**
 * Why an answer of the issuer is not believed, as one line for the log of the operator. The line
 * has codes and messages of the library, and never a token, a code or a claim.
 */
import { messageOf } from "../errors.ts";
import { visibleLine } from "../visible-text.ts";
import { IssuerAwayError } from "./bounded-fetch.ts";

const charactersMax = 300;
const causesMax = 4;

/** Keycloak has `not_allowed`. The long ones are those of OpenID Connect. */
const personRefusals =
  /^(?:invalid_grant|access_denied|not_allowed|(?:login|interaction|consent|account_selection)_required)$/;
const invalidTokens = /^OAUTH_JWT_(?:CLAIM_COMPARISON|TIMESTAMP_CHECK)_FAILED$/;

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

/**
 * Whether the issuer does not confirm a person any more: by its error, by an invalid token, or by
 * a token of somebody else. Any other failure is one of the issuer.
 */
export function isPersonRefused(error: unknown): boolean {
  return chainOf(error).some((each) => {
    if (each instanceof RejectedAnswerError) return each.cause === undefined;
    const code = "code" in each ? each.code : null;
    // The same code is that of an answer without any token.
    if (code === "OAUTH_INVALID_RESPONSE") return /\bJWT\b/.test(each.message);
    return personRefusals.test(oauthCodeOf(each)) || (typeof code === "string" && invalidTokens.test(code));
  });
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
