/** What a command gets of its process. Tests replace some of it. */
import type { EventEmitter } from "node:events";
import type { Streams } from "../app.ts";
import type { Environment } from "../config/document.ts";
import type { Services } from "./services.ts";

export interface Host extends Streams {
  cwd: string;
  /** Default: the environment of the process. */
  env?: Environment;
  services: Services;
  /** Where signals come from. Default: the process. */
  signals?: EventEmitter;
  /** The longest silence of a service. Default: two minutes. */
  silenceMs?: number;
}
