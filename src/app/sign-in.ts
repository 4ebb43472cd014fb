/** Signing in with OpenID Connect in a service: its start, and what an operator hears of it. */
import type { Logger } from "pino";
import type { Config } from "../config/load.ts";
import { inkwell } from "../invocation.ts";
import type { Jobs } from "../jobs.ts";
import type { TellAccess } from "../ledger/events.ts";
import type { Ledger } from "../ledger/ledger.ts";
import { PersonSignIn } from "../sign-in/person-sign-in.ts";
import type { Store } from "../store/store.ts";
import type { ServiceTimes } from "./service-times.ts";

interface SignInDependencies {
  store: Store;
  ledger: Ledger;
  logger: Logger;
  /** The operator token, which keys the hashes of sessions. */
  token: string;
  tell: TellAccess;
}

/** Returns what to do if the use of a session is not recorded. */
export function unrecordedUse(logger: Pick<Logger, "warn">): (err: unknown) => void {
  return (err) => logger.warn({ err }, "the use of a session could not be recorded; it may end earlier");
}

/** A section `sign_in` that is wrong is logged, and nobody can sign in. */
export function startSignIn(
  { signIn, signInProblems }: Pick<Config, "signIn" | "signInProblems">,
  dependencies: SignInDependencies,
  jobs: Jobs,
  { lapseEveryMs }: Pick<ServiceTimes, "lapseEveryMs">,
): PersonSignIn {
  const { logger } = dependencies;
  for (const problem of signInProblems) {
    logger.error({ problem }, "people cannot sign in: the section sign_in is wrong");
  }
  let hasJob = false;
  const people = new PersonSignIn({ ...dependencies, onError: unrecordedUse(logger), onConfigured }, null);
  people.configure(signIn);
  return people;

  function onConfigured(): void {
    if (hasJob) return;
    hasJob = true;
    jobs.start({
      name: "suspend_lapsed_accounts",
      everyMs: lapseEveryMs,
      failure: "accounts of people who no longer sign in could not be suspended",
      run: (isStopped) => people.lapse(isStopped),
    });
  }
}

/** Sentences for the operator. */
export function signInWarnings({ signInProblems }: Pick<Config, "signInProblems">): string[] {
  if (signInProblems.length === 0) return [];
  return [
    `People cannot sign in: the section sign_in of the configuration is wrong. To see why: ${inkwell("config check")}`,
  ];
}
