/** The output of `inkwell serve` after the start: URLs, the first key and examples. */
import type { FirstAccount } from "../accounts/first-account.ts";
import { inkwell, shownPath } from "../invocation.ts";
import { shellWordOf } from "../shell.ts";

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
  /** The first account and its key or file, on the first start only. */
  first: FirstAccount | null;
}

/**
 * Returns the text for people. Paths are relative to `cwd`. `signInCode` is for a sign-in link,
 * which only a terminal may show.
 */
export function bannerText(banner: StartupBanner, cwd: string, signInCode: string | null = null): string {
  const { publicUrl, onEveryAddress, operatorUrl, consoleUrl, portalUrl } = banner;
  const { tokenFile, models, first } = banner;
  const token = tokenFile === null ? "" : `   (token: ${shownPath(cwd, tokenFile)})`;
  const shownKey = keyText(first, cwd);
  const lines = [
    "",
    `  API        ${publicUrl}/v1${onEveryAddress ? "   (and on every other address of this machine)" : ""}`,
    `  Operator   ${operatorUrl}${token}`,
    `  Console    ${consoleUrl}   (sign in: ${inkwell("console")})`,
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
    const { account, plan, key, keyFile } = first;
    const file = keyFile === null ? "" : shownPath(cwd, keyFile);
    lines.push(
      `  Account "${account}" is new, on plan "${plan}". ${key === null ? "Its key is in this file, which only its owner can read:" : "This is its key; it is shown only once:"}`,
      "",
      `    ${key ?? file}`,
      "",
      ...(key === null ? ["  Store the key safely and delete the file.", ""] : []),
      "  Ask it something:",
      "",
      `    curl -N ${publicUrl}/v1/chat/completions \\`,
      `      -H "Authorization: Bearer ${shownKey}" -H "Content-Type: application/json" \\`,
      `      -d '{"model":"${models[0]?.id ?? ""}","stream":true,"messages":[{"role":"user","content":"What is an inkwell?"}]}'`,
      "",
      "  See the cost:",
      "",
      `    curl ${publicUrl}/v1/balance -H "Authorization: Bearer ${shownKey}"`,
      "",
    );
  }
  lines.push(`  In another terminal: ${inkwell("chat")}`, "  Ctrl-C stops the service.", "");
  return lines.join("\n");
}

/** Returns the key as a command of a shell has it. */
function keyText(first: FirstAccount | null, cwd: string): string {
  if (first === null) return "KEY";
  return first.keyFile === null
    ? (first.key ?? "KEY")
    : `$(cat ${shellWordOf(shownPath(cwd, first.keyFile))})`;
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
    first_account: first && {
      account: first.account,
      plan: first.plan,
      key: first.key,
      key_file: first.keyFile,
    },
  };
}
