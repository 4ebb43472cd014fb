/**
 * The context of every command: its streams, the configuration, and the operator actions on the
 * store.
 *
 * Results go to stdout, remarks about them to stderr, so that the output of a command can be piped.
 * With `--json`, stdout has one JSON document and nothing else; if the command fails, the document
 * is the error (failure.ts).
 */
import { OperatorActions } from "../accounts/operator-actions.ts";
import type { OpenStore } from "../app/database.ts";
import type { RunningService, Streams } from "../app.ts";
import type { Environment } from "../config/document.ts";
import { type Config, loadConfig } from "../config/load.ts";
import type { AuditReport } from "../store/audit.ts";

/** The functions of the composition root that commands use. */
export interface Services {
  /** Version of the package. */
  version: string;
  /** Throws if no ledger exists, unless `create`. */
  openStore(config: Config, options: { create: boolean }): Promise<OpenStore>;
  startService(config: Config, io: Streams, signal: AbortSignal): Promise<RunningService>;
  /** Checks the ledger without changing it. Throws if no ledger exists. */
  audit(config: Config): Promise<AuditReport>;
  /** Copies the ledger into a new file. */
  backup(config: Config, file: string): Promise<{ bytes: number }>;
  /**
   * Downloads the model file unless it exists. Returns its path, or null for a model of an
   * upstream.
   */
  pullModel(config: Config, modelId: string, io: Streams): Promise<string | null>;
}

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

  /** `options` is called when a command runs, because the command line is parsed only then. */
  constructor(host: Host, options: () => GlobalOptions) {
    this.host = host;
    this.#options = options;
  }

  get json(): boolean {
    return this.#options().json ?? false;
  }

  config(): Config {
    const { config: file } = this.#options();
    const { cwd, env } = this.host;
    return loadConfig({ cwd, file, env });
  }

  /**
   * Runs `use` on the opened store and closes it; a running service may use the same store. Only
   * with `create` a missing ledger is created: an empty ledger in the wrong folder would give wrong
   * answers.
   */
  async withActions<T>(
    config: Config,
    use: (actions: OperatorActions) => Promise<T>,
    { create = false } = {},
  ): Promise<T> {
    const { store, ledger } = await this.host.services.openStore(config, { create });
    const modelIds = config.models.map(({ id }) => id);
    try {
      return await use(new OperatorActions({ store, ledger, plans: config.plans, modelIds }));
    } finally {
      // The actions have awaited their operations, so the ledger has nothing left to record.
      await store.close();
    }
  }

  /** Prints the result: the document with `--json`, otherwise the text unless it is empty. */
  print(document: unknown, text: string): void {
    if (this.json) this.host.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
    else if (text !== "") this.host.stdout.write(`${text}\n`);
  }

  /** Writes a line for people to stderr. */
  remark(message: string): void {
    this.host.stderr.write(`${message}\n`);
  }
}
