/**
 * Variables that Kubernetes sets in every container for each Service of its namespace. For a Service `inkwell` these
 * are `INKWELL_PORT=tcp://10.0.0.1:8080`, `INKWELL_SERVICE_HOST` and others, some of which are names of settings.
 *
 * Guarantees that no such variable is read as a setting, and that no other variable is dropped: name and value must
 * both have the form that Kubernetes gives them.
 */
import { isIP } from "node:net";
import type { Environment } from "./document.ts";

const url = /^(?:tcp|udp|sctp):\/\/[\d.:a-f[\]]+:\d{1,5}$/i;
const port = /^\d{1,5}$/;
const protocol = /^(?:tcp|udp|sctp)$/;

/** Names after the prefix of the Service, which never ends with an underscore, and their values. */
const forms: readonly (readonly [name: RegExp, hasForm: (value: string) => boolean])[] = [
  [/[^_]_SERVICE_HOST$/, (value) => isIP(value) !== 0],
  [/[^_]_SERVICE_PORT(?:_[A-Z0-9_]+)?$/, (value) => port.test(value)],
  [/[^_]_PORT$/, (value) => url.test(value)],
  [/[^_]_PORT_\d+_(?:TCP|UDP|SCTP)$/, (value) => url.test(value)],
  [/[^_]_PORT_\d+_(?:TCP|UDP|SCTP)_PROTO$/, (value) => protocol.test(value)],
  [/[^_]_PORT_\d+_(?:TCP|UDP|SCTP)_PORT$/, (value) => port.test(value)],
  [/[^_]_PORT_\d+_(?:TCP|UDP|SCTP)_ADDR$/, (value) => isIP(value) !== 0],
];

/** The environment without the links to Services called `inkwell` or `inkwell-...`, and the names of these links. */
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
