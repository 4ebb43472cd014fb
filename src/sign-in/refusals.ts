/** Refused sign-ins: a sentence for the person, and a detail for the log of the operator. */
import { Refusal } from "../errors.ts";
import type { SignInSettings } from "./settings.ts";

export function notAdmitted({ contact }: Pick<SignInSettings, "contact">, detail: string): Refusal {
  const whom = contact === null ? "the operator of this service" : contact;
  return new Refusal(
    "not_admitted",
    `You are signed in at your organisation, but nobody has given you access here. Ask ${whom}.`,
    { detail },
  );
}

export function signInFailed(detail: string): Refusal {
  return new Refusal(
    "sign_in_failed",
    "Signing in did not succeed. It may have taken longer than ten minutes, or have begun in another browser. Try again.",
    { detail },
  );
}

export function issuerUnavailable({ name }: Pick<SignInSettings, "name">, detail: string): Refusal {
  return new Refusal(
    "issuer_unavailable",
    `${name} cannot be reached or used now. Try again later. If that does not help, tell the operator of this service.`,
    { detail },
  );
}

export function signInOff(): Refusal {
  return new Refusal("sign_in_off", "Signing in with OpenID Connect is not configured here.", {
    detail: "the section sign_in is missing or wrong",
  });
}
