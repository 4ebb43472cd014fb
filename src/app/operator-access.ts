/** The credentials of operators and of their programs: the token, sessions and operator keys. */
import type { Logger } from "pino";
import { OperatorKeys } from "../accounts/operator-keys.ts";
import { OperatorSessions } from "../accounts/operator-sessions.ts";
import type { PersonSignIn } from "../sign-in/person-sign-in.ts";
import type { Store } from "../store/store.ts";

interface AccessOptions {
  store: Store;
  /** The operator token. */
  token: string;
  people: PersonSignIn;
  logger: Logger;
}

export function operatorAccess({ store, token, people, logger }: AccessOptions) {
  const warn = (message: string) => (err: unknown) => logger.warn({ err }, message);
  const unused = "the use of a session could not be recorded; it may end earlier";
  return {
    sessions: new OperatorSessions(store, token, warn(unused), people),
    operatorKeys: new OperatorKeys(
      store,
      token,
      warn("the use of an operator key could not be recorded"),
      people,
    ),
    token: async () => token,
  };
}
