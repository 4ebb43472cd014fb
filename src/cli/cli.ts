/**
 * The context of every command: its streams, the configuration, and the operator actions on the
 * store.
 *
 * Results go to stdout, remarks about them to stderr, so that the output of a command can be
 * piped. With `--json`, stdout has one JSON document and nothing else; if the command fails, the
 * document is the error (failure.ts).
 */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { userInfo } from "node:os";
import { OperatorActions } from "../accounts/operator-actions.ts";
import type { Actor } from "../actors.ts";
import type { Streams } from "../app.ts";
import type { Environment } from "../config/document.ts";
import { wantedEventsOf } from "../config/events.ts";
import { type Config, loadConfig } from "../config/load.ts";
import { OperatorError, Refusal } from "../errors.ts";
import { invitationSettingsOf } from "../events/invitation-mail.ts";
import { inkwell } from "../invocation.ts";
import { roleNow } from "../sign-in/rules.ts";
import type { Store } from "../store/store.ts";
import { visibleText } from "../visible-text.ts";
import { tokenOf } from "./operator-token.ts";
import type { Services } from "./services.ts";

export interface Host extends Streams {
  cwd: string;
  /** Default: the environment of the process. */
  env?: Environment;
  services: Services;
}

export interface GlobalOptions {
  json?: boolean;
  config?: string;
}

export class Cli {
  readonly host: Host;
  readonly #options: () => GlobalOptions;
  /** Exit code of a command that does not throw. */
  exitCode = 0;
  /** The id that the command made for its change. Null: it made none. */
  operation: string | null = null;

  /** `options` is called when a command runs, because the command line is parsed only then. */
  constructor(host: Host, options: () => GlobalOptions) {
    this.host = host;
    this.#options = options;
  }

  /** Makes an id for a change whose caller gave none. */
  newOperation(command: string): string {
    this.operation = `${command}-${randomUUID()}`;
    return this.operation;
  }

  get json(): boolean {
    return this.#options().json ?? false;
  }

  /** Reads the configuration. Default: the file that the command line or the folder names. */
  config(file = this.#options().config): Config {
    const { cwd, env } = this.host;
    return loadConfig({ cwd, file, env });
  }

  /**
   * Runs `use` on the opened store and closes it; a running service may use the same store. Only
   * with `create` a missing ledger is created: an empty ledger in the wrong folder would give
   * wrong answers.
   */
  async withActions<T>(
    config: Config,
    use: (actions: OperatorActions) => Promise<T>,
    { create = false } = {},
  ): Promise<T> {
    const { store, ledger } = await this.host.services.openStore(config, { create });
    const modelIds = () => config.models.map(({ id }) => id);
    try {
      return await use(
        new OperatorActions({
          ...{ store, ledger, modelIds, actor: user() },
          timezone: () => config.timezone,
          token: async () => tokenOf(config),
          endpoints: () => wantedEventsOf(config.events),
          invitations: () => invitationSettingsOf(config),
          roleNow: (person) => config.signIn && roleNow(person, config.signIn, store.times().nowMs),
        }),
      );
    } catch (error) {
      throw await withUnappliedPlans(error, store, config);
    } finally {
      // The actions have awaited their operations, so the ledger has nothing left to record.
      await store.close();
    }
  }

  /** Prints the result: the document with `--json`, otherwise the text unless it is empty. */
  print(document: unknown, text: string): void {
    const shown = this.json ? JSON.stringify(document, null, 2) : text;
    if (shown !== "") this.host.stdout.write(`${visibleText(shown)}\n`);
  }

  /** Writes a part of a long result, and waits until a slow reader has taken it. */
  async write(text: string): Promise<void> {
    const { stdout } = this.host;
    if (!stdout.write(text)) await once(stdout, "drain");
  }

  /** Writes a line for people to stderr. */
  remark(message: string): void {
    this.host.stderr.write(`${visibleText(message)}\n`);
  }
}

/** The user of the command. It opens the database, and so it may do everything. */
export function user(): Actor {
  return { by: `command_line:${userName()}`, role: "owner" };
}

function userName(): string {
  try {
    return userInfo().username;
  } catch {
    // In containers, the user often has no name.
    return String(process.getuid?.() ?? "unknown");
  }
}

/** Adds the plans that the configuration has, and the ledger does not offer, to a plan refusal. */
async function withUnappliedPlans(error: unknown, store: Store, { plans }: Config): Promise<unknown> {
  if (!(error instanceof Refusal) || error.param !== "plan") return error;
  const { offered } = await store.plans();
  const unapplied = [...plans.keys()].filter((id) => !offered.includes(id));
  if (unapplied.length === 0) return error;
  return new OperatorError(
    `${error.message} The configuration has ${unapplied.join(", ")}, which the current plans do not offer. To make the plans of the configuration current: ${inkwell("plans apply")}`,
    error,
  );
}
