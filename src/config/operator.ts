/** The operator's listener: where it is bound, its token, and the names under which it responds. */
import { isIP } from "node:net";
import { domainToASCII } from "node:url";
import * as kind from "./kinds.ts";
import type { Section } from "./section.ts";

export interface OperatorListener {
  host: string;
  /** 0: any free port. */
  port: number;
  /** Null: kept in a file of the data folder, see `operatorToken`. */
  token: string | null;
  /** The URL that operators use, if it is not that of the listener itself. */
  url: string | null;
  /** Names that clients may use in `Host` beside IP addresses, `localhost`, and those of `url` and `host`. ASCII. */
  hosts: readonly string[];
}

/** `listen` is the public listener, whose port must be another one. */
export function readOperator(section: Section, listen: { host: string; port: number }): OperatorListener {
  const host = section.placed("host", kind.host, { or: "127.0.0.1", env: "INKWELL_OPERATOR_HOST" });
  const port = section.placed("port", kind.port, { or: 8081, env: "INKWELL_OPERATOR_PORT" });
  const token = section.optional("token", kind.operatorToken, { env: "INKWELL_OPERATOR_TOKEN" });
  if (token === null && !kind.isLoopback(host.value)) {
    section.problem(
      host.where,
      `operator.host: ${host.value} can be reached from other machines, so operator.token must be set ` +
        "(INKWELL_OPERATOR_TOKEN); or keep to 127.0.0.1",
    );
  }
  const areTogether = host.value === listen.host || isEveryAddress(host.value) || isEveryAddress(listen.host);
  if (port.value !== 0 && port.value === listen.port && areTogether) {
    section.problem(port.where, `operator.port: ${port.value} is also the port of listen; choose another`);
  }
  const url = section.optional("url", kind.ownUrl, { env: "INKWELL_OPERATOR_URL" });
  const hosts = section.list("hosts", kind.hostName, {
    or: [],
    env: "INKWELL_OPERATOR_HOSTS",
    expects: "a list of host names: [ops.example, node-a]",
  });
  return {
    host: host.value,
    port: port.value,
    token,
    url,
    hosts: hosts.value.map((each) => domainToASCII(each.value)),
  };
}

/** Host names of the operator's listener, beside IP addresses and `localhost`. */
export function operatorNames({ host, url, hosts }: OperatorListener): string[] {
  const names = [host, ...hosts, ...(url === null ? [] : [new URL(url).hostname])];
  return names.filter((name) => isIP(name) === 0 && name !== "localhost");
}

function isEveryAddress(host: string): boolean {
  return host === "0.0.0.0" || host === "::";
}
