/**
 * Ignores the variables that Kubernetes sets in every container for each Service of its
 * namespace. For a Service `inkwell` these are `INKWELL_PORT=tcp://10.0.0.1:8080`,
 * `INKWELL_SERVICE_HOST` and others. Some of them have the name of a setting.
 */
import type { Environment } from "./document.ts";

/** No setting has such a name. */
const name =
  /^INKWELL_(?:.*_)?(?:SERVICE_(?:HOST|PORT(?:_\w+)?)|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)$/;
const url = /^(?:tcp|udp|sctp):\/\/[\d.:a-f[\]]+:\d{1,5}$/i;

/**
 * Returns the environment without links to Services `inkwell` and `inkwell-...`, and the names of
 * these links.
 */
export function withoutServiceLinks(env: Environment): { env: Environment; links: string[] } {
  const isLink = ([key, value = ""]: [string, string | undefined]) =>
    name.test(key) || (/^INKWELL_(?:.*_)?PORT$/.test(key) && url.test(value));
  const entries = Object.entries(env);
  return {
    env: Object.fromEntries(entries.filter((entry) => !isLink(entry))),
    links: entries.filter(isLink).map(([key]) => key),
  };
}
