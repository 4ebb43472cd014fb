/**
 * Ignores the variables that Kubernetes sets in every container for each Service of its
 * namespace. For a Service `inkwell` these are `INKWELL_PORT=tcp://10.0.0.1:8080`,
 * `INKWELL_SERVICE_HOST` and others. Some of them have the name of a setting.
 *
 * A variable is ignored only if its name and its value both have the form that Kubernetes uses.
 */
import { isIP } from "node:net";
import type { Environment } from "./document.ts";

const url = /^(?:tcp|udp|sctp):\/\/[\d.:a-f[\]]+:\d{1,5}$/i;
const port = /^\d{1,5}$/;
const protocol = /^(?:tcp|udp|sctp)$/;

/**
 * Ends of the names, after a Service prefix that does not end with an underscore, and forms of
 * the values.
 */
const forms: readonly (readonly [name: RegExp, hasForm: (value: string) => boolean])[] = [
  [/[^_]_SERVICE_HOST$/, (value) => isIP(value) !== 0],
  [/[^_]_SERVICE_PORT(?:_[A-Z0-9_]+)?$/, (value) => port.test(value)],
  [/[^_]_PORT$/, (value) => url.test(value)],
  [/[^_]_PORT_\d+_(?:TCP|UDP|SCTP)$/, (value) => url.test(value)],
  [/[^_]_PORT_\d+_(?:TCP|UDP|SCTP)_PROTO$/, (value) => protocol.test(value)],
  [/[^_]_PORT_\d+_(?:TCP|UDP|SCTP)_PORT$/, (value) => port.test(value)],
  [/[^_]_PORT_\d+_(?:TCP|UDP|SCTP)_ADDR$/, (value) => isIP(value) !== 0],
];

/**
 * Returns the environment without links to Services `inkwell` and `inkwell-...`, and the names of
 * these links.
 */
export function withoutServiceLinks(env: Environment): { env: Environment; links: string[] } {
  const links = Object.entries(env)
    .filter(([name, value]) => value !== undefined && isServiceLink(name, value))
    .map(([name]) => name);
  const others = Object.entries(env).filter(([name]) => !links.includes(name));
  return { env: Object.fromEntries(others), links };
}

function isServiceLink(name: string, value: string): boolean {
  return (
    name.startsWith("INKWELL_") && forms.some(([pattern, hasForm]) => pattern.test(name) && hasForm(value))
  );
}
