/** Binding a port, and the one message an operator gets where that cannot be done. */
import { OperatorError } from "../errors.ts";

export async function listening(
  name: "listen" | "operator",
  { host, port }: { host: string; port: number },
  bind: () => Promise<string>,
): Promise<string> {
  try {
    return await bind();
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : undefined;
    const prefix = name === "listen" ? "INKWELL" : "INKWELL_OPERATOR";
    const other = `choose another one with ${name}: { port } in inkwell.yaml or ${prefix}_PORT`;
    if (code === "EADDRINUSE") {
      throw new OperatorError(
        `Port ${port} on ${host} is taken, perhaps by another Inkwell. Stop what listens there, or ${other}.`,
        error,
      );
    }
    if (code === "EACCES") {
      throw new OperatorError(`This user may not listen on port ${port}; ${other}: any above 1023.`, error);
    }
    if (code === "EADDRNOTAVAIL" || code === "ENOTFOUND") {
      throw new OperatorError(
        `This machine has no address ${host}; name one that it has with ${name}: { host } in inkwell.yaml or ${prefix}_HOST.`,
        error,
      );
    }
    throw error;
  }
}
