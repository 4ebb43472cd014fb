/**
 * What every command is handed: the streams it writes to, the configuration, the store.
 *
 * Results go to stdout, everything that is said about them to stderr, so that the output of a command can be piped.
 * With `--json` stdout has one JSON document and nothing else; for a command that fails it is the error (failure.ts).
 */

import type { OpenStore } from "../app/database.ts";
import type { RunningService, Streams } from "../app.ts";
import type { Environment } from "../config/document.ts";
import { type Config, type LoadOptions, loadConfig } from "../config/load.ts";
import type { AuditReport } from "../store/audit.ts";

/** What the composition root offers to the commands. */
export interface Services {
  /** Of the package. */
  version: string;
  /** Unless `make`, there must be a ledger already. */
  openStore(config: Config, options: { make: boolean }): Promise<OpenStore>;
  serve(config: Config, io: Streams, signal: AbortSignal): Promise<RunningService>;
  /** Checks the ledger, which there must be. It is not changed. */
  audit(config: Config): Promise<AuditReport>;
  /** Copies the ledger into a file that is not there yet. */
  backup(config: Config, file: string): Promise<{ bytes: number }>;
  /** Fetches the model file of the configured model unless it is there; the path. */
  pullModel(config: Config, modelId: string, io: Streams): Promise<string | null>;
}

export interface Host extends Streams {
  cwd: string;
  /** Absent: the environment of the process. */
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
  /** 0 unless a command that went through has something to report by it. */
  exitCode = 0;

  /** `options` is asked when a command runs: only then is the command line parsed. */
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
    const options: LoadOptions = { cwd };
    if (file !== undefined) options.file = file;
    if (env !== undefined) options.env = env;
    return loadConfig(options);
  }

  /**
   * Opens the store for the length of `use`; with or without a service that runs on it. Where there is no ledger yet
   * it is made only for `make`: in the wrong folder, an empty one would answer every question wrongly.
   */
  async withStore<T>(
    config: Config,
    use: (open: OpenStore) => Promise<T>,
    { make = false } = {},
  ): Promise<T> {
    const open = await this.host.services.openStore(config, { make });
    try {
      return await use(open);
    } finally {
      await open.store.close();
    }
  }

  /** The result: the document with `--json`, else the text; nothing where the text is empty. */
  print(document: unknown, text: string): void {
    if (this.json) this.host.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
    else if (text !== "") this.host.stdout.write(`${text}\n`);
  }

  /** For people, beside the result. */
  say(message: string): void {
    this.host.stderr.write(`${message}\n`);
  }
}
