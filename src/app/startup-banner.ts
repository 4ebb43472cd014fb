/** The output of `inkwell serve` after the start: URLs, the first key and examples. */
import { extname, relative, sep } from "node:path";

export interface StartupBanner {
  /**
   * `http://127.0.0.1:8080`. If the service listens on every address, the URL for this machine.
   */
  publicUrl: string;
  onEveryAddress: boolean;
  operatorUrl: string;
  /** URL of the console for a browser. */
  consoleUrl: string;
  /** URL of the portal for a browser. Null if there is none. */
  portalUrl: string | null;
  /** Absolute path of the file with the operator token. Null if the token is configured. */
  tokenFile: string | null;
  models: readonly { id: string; onMiniature: boolean }[];
  /** The first account and its key, on the first start only. */
  first: { account: string; plan: string; key: string } | null;
  /** The configuration has port 0, so other commands do not know the URL. */
  onAnyPort: boolean;
}

/**
 * Returns the text for people. Paths are relative to `cwd`. `signInCode` is for a sign-in link,
 * which only a terminal may show.
 */
export function bannerText(banner: StartupBanner, cwd: string, signInCode: string | null = null): string {
  const { publicUrl, onEveryAddress, operatorUrl, consoleUrl, portalUrl } = banner;
  const { tokenFile, models, first, onAnyPort } = banner;
  const token = tokenFile === null ? "" : `   (token: ${relative(cwd, tokenFile)})`;
  const lines = [
    "",
    `  API        ${publicUrl}/v1${onEveryAddress ? "   (and on every other address of this machine)" : ""}`,
    `  Operator   ${operatorUrl}${token}`,
    `  Console    ${consoleUrl}   (sign in: ${commandOf(import.meta.filename)} console${onAnyPort ? ` --url ${operatorUrl}` : ""})`,
    ...(portalUrl === null ? [] : [`  Portal     ${portalUrl}   (sign in with an API key)`]),
    `  Models     ${models.map(({ id, onMiniature }) => (onMiniature ? `${id} (on the miniature)` : id)).join(", ")}`,
    "",
  ];
  if (signInCode !== null) {
    lines.push(
      "  Sign in to the console with this link. It works once, for five minutes:",
      "",
      `    ${signInLink(consoleUrl, signInCode)}`,
      "",
    );
  }
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
      "  See the cost:",
      "",
      `    curl ${publicUrl}/v1/balance -H "Authorization: Bearer ${first.key}"`,
      "",
    );
  }
  const address = onAnyPort ? ` --url ${publicUrl} --key ${first?.key ?? "KEY"}` : "";
  lines.push(
    `  In another terminal: ${commandOf(import.meta.filename)} chat${address}`,
    "  Ctrl-C stops the service.",
    "",
  );
  return lines.join("\n");
}

/** Returns how a person calls the program that `module` is part of. */
export function commandOf(module: string): string {
  if (extname(module) === ".ts") return "npm run -s inkwell --";
  return module.split(sep).includes("node_modules") ? "npx inkwell" : "inkwell";
}

/** Returns the URL of the console on a listener. */
export function consoleUrl(listenerUrl: string): string {
  return `${listenerUrl.replace(/\/+$/, "")}/console`;
}

/** Browsers do not send a fragment, so the code reaches no log of a server or proxy. */
export function signInLink(url: string, code: string): string {
  return `${url}#code=${code}`;
}

/** Returns the JSON object for programs, with absolute paths. */
export function bannerObject({ publicUrl, operatorUrl, portalUrl, tokenFile, models, first }: StartupBanner) {
  return {
    api: `${publicUrl}/v1`,
    operator: operatorUrl,
    portal: portalUrl,
    operator_token_file: tokenFile,
    models: models.map(({ id, onMiniature }) => ({ id, on_miniature: onMiniature })),
    first_account: first,
  };
}
