/** Binds the ports, and explains to the operator why a port cannot be bound. */
import { once } from "node:events";
import { createServer } from "node:net";
import { codeOf, OperatorError } from "../errors.ts";
import { type Address, urlOf } from "../http/listening.ts";

type ListenerName = "listen" | "operator";

/** Returns the host for clients on this machine: loopback if the listener has every address. */
export function dialled(host: string): string {
  if (host === "0.0.0.0") return "127.0.0.1";
  return host === "::" ? "::1" : host;
}

/** The public address for the startup banner. `boundUrl` has the port that the listener got. */
export function publicAddress({ host, port }: Address, boundUrl: string) {
  const client = dialled(host);
  return {
    publicUrl: urlOf(client, port || Number(new URL(boundUrl).port)),
    onEveryAddress: client !== host,
    onAnyPort: port === 0,
  };
}

/** Throws an `OperatorError` if the port cannot be bound. Does not keep it. */
export async function requirePort(name: ListenerName, address: Address): Promise<void> {
  if (address.port === 0) return;
  await bindOrExplain(name, address, async () => {
    const server = createServer().listen(address);
    await once(server, "listening");
    await once(server.close(), "close");
  });
}

/** Runs `bind`. Throws an `OperatorError` if the address cannot be bound. */
export async function bindOrExplain<T>(
  name: ListenerName,
  { host, port }: Address,
  bind: () => Promise<T>,
): Promise<T> {
  try {
    return await bind();
  } catch (error) {
    const code = codeOf(error);
    const prefix = name === "listen" ? "INKWELL" : "INKWELL_OPERATOR";
    const other = `choose another one with ${name}: { port } in inkwell.yaml or ${prefix}_PORT`;
    if (code === "EADDRINUSE") {
      throw new OperatorError(
        `Port ${port} on ${host} is in use, perhaps by another Inkwell. Stop the other program, or ${other}.`,
        error,
      );
    }
    if (code === "EACCES") {
      throw new OperatorError(
        `This user may not listen on port ${port}. Ports above 1023 are allowed: ${other}.`,
        error,
      );
    }
    if (code === "EADDRNOTAVAIL" || code === "ENOTFOUND") {
      throw new OperatorError(
        `This machine has no address ${host}. Set one that it has with ${name}: { host } in inkwell.yaml or ${prefix}_HOST.`,
        error,
      );
    }
    throw error;
  }
}
