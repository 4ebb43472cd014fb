/**
 * What `inkwell serve` says when it is up: where it listens, the first key, and lines to paste.
 */
import { relative } from "node:path";

export interface StartupBanner {
  /**
   * `http://127.0.0.1:8080`; where it listens on every address, one that a client on this machine
   * can use.
   */
  publicUrl: string;
  onEveryAddress: boolean;
  operatorUrl: string;
  /**
   * The file that the operator token lies in, as an absolute path; null where it was configured.
   */
  tokenFile: string | null;
  models: readonly { id: string; onMiniature: boolean }[];
  /** The first account and its key, on the first start only. */
  first: { account: string; plan: string; key: string } | null;
  /** The configuration leaves the port open: no other command can know the address. */
  onAnyPort: boolean;
}

/** Paths are shown as they are from `cwd`. */
export function bannerText(
  { publicUrl, onEveryAddress, operatorUrl, tokenFile, models, first, onAnyPort }: StartupBanner,
  cwd: string,
): string {
  const token = tokenFile === null ? "" : `   (token: ${relative(cwd, tokenFile)})`;
  const lines = [
    "",
    `  API        ${publicUrl}/v1${onEveryAddress ? "   (and on every other address of this machine)" : ""}`,
    `  Operator   ${operatorUrl}${token}`,
    `  Models     ${models.map(({ id, onMiniature }) => (onMiniature ? `${id} (the miniature stands in)` : id)).join(", ")}`,
    "",
  ];
  if (first !== null) {
    lines.push(
      `  Account "${first.account}" is new, on plan "${first.plan}". This is its key; it is shown only once:`,
      "",
      `    ${first.key}`,
      "",
      "  Ask it something:",
      "",
      `    curl -N ${publicUrl}/v1/chat/completions \\`,
      `      -H "Authorization: Bearer ${first.key}" -H "Content-Type: application/json" \\`,
      `      -d '{"model":"${models[0]?.id ?? ""}","stream":true,"messages":[{"role":"user","content":"What is an inkwell?"}]}'`,
      "",
      "  See what it cost:",
      "",
      `    curl ${publicUrl}/v1/balance -H "Authorization: Bearer ${first.key}"`,
      "",
    );
  }
  const address = onAnyPort ? ` --url ${publicUrl} --key ${first?.key ?? "KEY"}` : "";
  lines.push(
    `  In another terminal: npm run -s inkwell -- chat${address}`,
    "  Ctrl-C stops the service.",
    "",
  );
  return lines.join("\n");
}

/** The same for a program; a path is absolute. */
export function bannerObject({ publicUrl, operatorUrl, tokenFile, models, first }: StartupBanner) {
  return {
    api: `${publicUrl}/v1`,
    operator: operatorUrl,
    operator_token_file: tokenFile,
    models: models.map(({ id, onMiniature }) => ({ id, on_miniature: onMiniature })),
    first_account: first,
  };
}
