/** The `operator` section: address, token and host names of the operator listener. */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { domainToASCII } from "node:url";
import { messageOf, OperatorError } from "../errors.ts";
import { makeFolder } from "../make-folder.ts";
import { createSecretFile } from "../secret-file.ts";
import * as kind from "./kinds.ts";
import { type ListenerAddress, namesAmong, requireOwnPort } from "./listeners.ts";
import type { Section } from "./section.ts";

type OperatorListener = ReturnType<typeof readOperator>;

/** `listen` is the public listener, which must have another port. */
export function readOperator(section: Section, listen: ListenerAddress) {
  const host = section.placed("host", kind.host, { or: "127.0.0.1" });
  const port = section.placed("port", kind.port, { or: 8081 });
  const token = section.optional("token", kind.operatorToken);
  if (token === null && !kind.isLoopback(host.value)) {
    section.problem(
      host.where,
      `operator.host: ${host.value} can be reached from other machines, so operator.token must be set ` +
        "(INKWELL_OPERATOR_TOKEN); or use 127.0.0.1",
    );
  }
  const address = { host: host.value, port: port.value, where: port.where };
  requireOwnPort(section, address, { listen });
  const url = section.optional("url", kind.ownUrl);
  const hosts = section.list("hosts", kind.hostName, "a list of host names: [ops.example, node-a]");
  const supportCredits = section.value("support_credits", kind.credits, { or: 0 });
  return {
    host: host.value,
    /** 0: any free port. */
    port: port.value,
    /** Null: in a file of the data folder, see `readOperatorToken`. */
    token,
    /** URL that operators use, if it differs from that of the listener. */
    url,
    /** Further names allowed in `Host`, in ASCII. See `operatorNames`. */
    hosts: hosts.values.map(domainToASCII),
    /** Whole promotional credits that support may give in a day. */
    supportCredits,
  };
}

/** Returns the host names of the operator listener, besides IP addresses and `localhost`. */
export function operatorNames({ host, url, hosts }: OperatorListener): string[] {
  return namesAmong([host, ...hosts, ...(url === null ? [] : [new URL(url).hostname])]);
}

/** Name of the token file in the data folder. */
export const tokenFileName = "operator-token";

/**
 * Returns the configured token of the operator listener, or the token in the file
 * `operator-token` of the data folder. The first call creates this file, readable only by its
 * owner. `file` is null if the token is configured. `isNew`: this call has created the file.
 */
export async function readOperatorToken(config: {
  operator: OperatorListener;
  dataDir: string;
}): Promise<{ token: string; file: string | null; isNew: boolean }> {
  const { operator, dataDir } = config;
  if (operator.token !== null) return { token: operator.token, file: null, isNew: false };
  const file = path.join(dataDir, tokenFileName);
  try {
    makeFolder(dataDir);
    // If two processes start together, one creates the file and both read the same token.
    const isNew = !existsSync(file);
    if (isNew) await createSecretFile(file, randomBytes(32).toString("base64url"));
    const token = kind.operatorToken.read((await readFile(file, "utf8")).trim(), true);
    if (token !== undefined) return { token, file, isNew };
  } catch (error) {
    throw new OperatorError(
      `The operator token in ${file} cannot be read or created: ${messageOf(error)}`,
      error,
    );
  }
  throw new OperatorError(
    `The operator token in ${file} must be ${kind.operatorToken.expects}. Delete the file: the next start creates a new one.`,
  );
}
