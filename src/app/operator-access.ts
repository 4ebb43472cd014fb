/** The credentials of operators and of their programs: the token, sessions and operator keys. */
import type { Logger } from "pino";
import { OperatorKeys } from "../accounts/operator-keys.ts";
import { OperatorSessions } from "../accounts/operator-sessions.ts";
import type { PersonSignIn } from "../sign-in/person-sign-in.ts";
import type { Store } from "../store/store.ts";
import { unrecordedUse } from "./sign-in.ts";

interface AccessOptions {
  store: Store;
  /** The operator token. */
  token: string;
  people: PersonSignIn;
  logger: Logger;
}

export function operatorAccess({ store, token, people, logger }: AccessOptions) {
  const onError = (err: unknown) => logger.warn({ err }, "the use of an operator key could not be recorded");
  return {
    sessions: new OperatorSessions(store, token, unrecordedUse(logger), people),
    operatorKeys: new OperatorKeys(store, token, onError, people),
    token: async () => token,
  };
}
