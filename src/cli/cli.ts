/**
 * The context of every command: its streams, the configuration, and the operator API.
 *
 * Results go to stdout, remarks about them to stderr, so that the output of a command can be
 * piped. With `--json`, stdout has one JSON document and nothing else; if the command fails, the
 * document is the error (failure.ts).
 */
import { randomUUID } from "node:crypto";
import type { EventEmitter } from "node:events";
import { commandVariable } from "../config/command-variables.ts";
import type { Config } from "../config/load.ts";
import { OperatorError } from "../errors.ts";
import { visibleText } from "../visible-text.ts";
import type { Host } from "./host.ts";
import { OperatorApi } from "./operator-api.ts";
import { Spinner } from "./spinner.ts";

export interface GlobalOptions {
  json?: boolean;
  config?: string;
  server?: string;
}

/** Ends a command whose result cannot be written any more. */
export class OutputClosed extends Error {}

export class Cli implements AsyncDisposable {
  readonly host: Host;
  readonly #options: () => GlobalOptions;
  readonly spinner: Spinner;
  #api: OperatorApi | null = null;
  /** Exit code of a command that does not throw. */
  exitCode = 0;
  /** The id that the command made for its change. Null: it made none. */
  operation: string | null = null;

  /** `options` is called when a command runs, because the command line is parsed only then. */
  constructor(host: Host, options: () => GlobalOptions) {
    this.host = host;
    this.#options = options;
    this.spinner = new Spinner(host.stderr);
  }

  /** Makes an id for a change whose caller gave none. */
  newOperation(command: string): string {
    this.operation = `${command}-${randomUUID()}`;
    return this.operation;
  }

  get signals(): EventEmitter {
    return this.host.signals ?? process;
  }

  get json(): boolean {
    return this.#options().json ?? false;
  }

  /** Columns of the terminal that shows results. Elsewhere they have no limit. */
  get width(): number {
    const { isTTY, columns } = this.host.stdout;
    return isTTY === true && columns !== undefined && columns > 0 ? columns : Number.POSITIVE_INFINITY;
  }

  /** The service on another machine that the commands ask. Null: that of the folder. */
  get server(): string | null {
    return this.#options().server ?? commandVariable("INKWELL_SERVER", this.host.env);
  }

  get api(): OperatorApi {
    const { host, server, spinner } = this;
    this.#api ??= new OperatorApi({ host, server, spinner, config: () => this.config() });
    return this.#api;
  }

  /** Reads the configuration. Default: the file that the command line or the folder names. */
  async config(file = this.#options().config): Promise<Config> {
    const { cwd, env } = this.host;
    if (this.server !== null) {
      throw new OperatorError(
        "This command works in the folder of a service, and not on another machine. Leave out --server, and unset INKWELL_SERVER.",
      );
    }
    // Requests to another machine need no configuration, and the module is large.
    const { loadConfig } = await import("../config/load.ts");
    return loadConfig({ cwd, file, env });
  }

  /** Prints the result: the document with `--json`, otherwise the text unless it is empty. */
  print(document: unknown, text: string): void {
    const shown = this.json ? JSON.stringify(document, null, 2) : text;
    this.spinner.clear();
    if (shown !== "") this.host.stdout.write(`${visibleText(shown)}\n`);
  }

  /**
   * Writes a part of a long result, and waits until a slow reader has taken it. Throws
   * `OutputClosed` if nobody reads on.
   */
  async write(text: string): Promise<void> {
    this.spinner.clear();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.host.stdout.write(text, (error) => (error ? reject(new OutputClosed()) : resolve()));
    await promise;
  }

  /** Writes a line for people to stderr. */
  remark(message: string): void {
    this.spinner.clear();
    this.host.stderr.write(`${visibleText(message)}\n`);
  }

  /** Closes the database, if a request has opened it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#api?.[Symbol.asyncDispose]();
  }
}
