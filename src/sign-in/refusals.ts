/** Refused sign-ins: a sentence for the person, and a reason for the log of the operator. */
import { type OperatorCode, OperatorRefusal } from "../accounts/refusals.ts";
import type { SignInSettings } from "./settings.ts";

export class SignInRefusal extends OperatorRefusal {
  /** For the log. It is never sent. */
  readonly reason: string;

  constructor(code: OperatorCode, message: string, reason: string) {
    super(code, message);
    this.reason = reason;
  }
}

export function notAdmitted({ contact }: Pick<SignInSettings, "contact">, reason: string): SignInRefusal {
  const whom = contact === null ? "the operator of this service" : contact;
  return new SignInRefusal(
    "not_admitted",
    `You are signed in at your organisation, but nobody has given you access here. Ask ${whom}.`,
    reason,
  );
}

export function signInFailed(reason: string): SignInRefusal {
  return new SignInRefusal(
    "sign_in_failed",
    "Signing in did not succeed. It may have taken longer than ten minutes, or have begun in another browser. Try again.",
    reason,
  );
}

export function issuerUnavailable({ name }: Pick<SignInSettings, "name">, reason: string): SignInRefusal {
  return new SignInRefusal(
    "issuer_unavailable",
    `${name} cannot be reached or used now. Try again later. If that does not help, tell the operator of this service.`,
    reason,
  );
}

export function signInOff(): SignInRefusal {
  return new SignInRefusal(
    "sign_in_off",
    "Signing in with OpenID Connect is not configured here.",
    "the section sign_in is missing or wrong",
  );
}
