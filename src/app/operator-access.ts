/** The credentials of operators and of their programs: the token, sessions and operator keys. */
import type { Logger } from "pino";
import { OperatorKeys } from "../accounts/operator-keys.ts";
import { OperatorSessions } from "../accounts/operator-sessions.ts";
import type { PersonSignIn } from "../sign-in/person-sign-in.ts";
import type { Store } from "../store/store.ts";
import { unrecordedUse } from "./sign-in.ts";

interface AccessOptions {
  store: Store;
  /** The operator token. `isNew`: this start has made it. */
  token: { token: string; isNew: boolean };
  people: PersonSignIn;
  logger: Logger;
}

/** Warns if operator keys were made with a token that is lost. */
export async function operatorAccess({ store, token: { token, isNew }, people, logger }: AccessOptions) {
  if (isNew && (await store.operatorKeys.list()).some(({ endedMs }) => endedMs === null))
    logger.warn(
      "the operator token is new: operator keys, links and invitations made with an earlier one do not work; restore that token, or make them again",
    );
  const onError = (err: unknown) => logger.warn({ err }, "the use of an operator key could not be recorded");
  return {
    sessions: new OperatorSessions(store, token, unrecordedUse(logger), people),
    operatorKeys: new OperatorKeys(store, token, onError, people),
    token: async () => token,
  };
}
