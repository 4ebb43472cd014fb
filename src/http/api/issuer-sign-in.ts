/** The part that the listeners need of signing in with OpenID Connect. */
import type { NewSession, SessionSecrets } from "../../accounts/sessions.ts";
import type { SignInPlace } from "../../sign-in/person-sign-in.ts";
import { signInOff } from "../../sign-in/refusals.ts";
import type { SessionRow } from "../../store/sessions.ts";

export interface IssuerSignIn {
  /** The content of the sign-in page. Null: nobody signs in with OpenID Connect. */
  readonly shown: { name: string; problem: string | null } | null;
  /** Returns the page of the issuer. */
  begin(place: SignInPlace): Promise<URL>;
  /** `query`: what the issuer has added to the address of the page that it sent the browser to. */
  finish(query: string, place: SignInPlace): Promise<NewSession>;
  /** Revokes the refresh token of a session that has ended. Logs failures, and never rejects. */
  revokeToken(session: SessionRow, secrets: SessionSecrets): Promise<void>;
}

export const noIssuer: IssuerSignIn = {
  shown: null,
  begin: () => Promise.reject(signInOff()),
  finish: () => Promise.reject(signInOff()),
  revokeToken: async () => {},
};
