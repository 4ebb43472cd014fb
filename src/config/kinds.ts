/**
 * The kinds of values in a configuration: how to read each of them, and how messages describe a
 * valid value.
 *
 * A kind returns the value, or undefined if it is invalid. It never throws, and it converts only
 * text from the environment into numbers and flags.
 */

import { isIP } from "node:net";
import { domainToASCII } from "node:url";
import { price as priceRule } from "../accounts/value-rules.ts";
import { isPeriod, isRefillPeriod, isTimezone, refillPeriodRule } from "../ledger/windows.ts";
import { creditsMax, timezoneRule } from "../units.ts";

export interface Kind<T> {
  /** Completes "expected ...". */
  expects: string;
  /**
   * Replaces an invalid value so that checking continues. Such a configuration is never returned.
   */
  standIn: T;
  /** True for secrets: messages do not show an invalid value. */
  secret?: boolean;
  read(value: unknown, isText: boolean): T | undefined;
}

function number(
  expects: string,
  min: number,
  written: RegExp,
  accepts: (value: number) => boolean,
): Kind<number> {
  return {
    expects,
    standIn: min,
    read(value, isText) {
      const isNumber = isText && typeof value === "string" && written.test(value.trim());
      const read = isNumber ? Number(value) : value;
      return typeof read === "number" && read >= min && accepts(read) ? read : undefined;
    },
  };
}

export function whole(
  min: number,
  max: number,
  expects = `a whole number from ${min} to ${max}`,
): Kind<number> {
  return number(expects, min, /^-?\d{1,16}$/, (value) => Number.isSafeInteger(value) && value <= max);
}

export function decimal(min: number, max: number): Kind<number> {
  return number(`a number from ${min} to ${max}`, min, /^\d{1,9}(\.\d{1,9})?$/, (value) => value <= max);
}

export function text(
  expects: string,
  accepts: (value: string) => boolean,
  options: { standIn?: string; secret?: boolean } = {},
): Kind<string> {
  return {
    expects,
    standIn: options.standIn ?? "",
    secret: options.secret ?? false,
    read: (value) => (typeof value === "string" && accepts(value) ? value : undefined),
  };
}

export function oneOf<const T extends string>(first: T, ...others: T[]): Kind<T> {
  const all = [first, ...others];
  return {
    expects: all.length === 1 ? first : `${all.slice(0, -1).join(", ")} or ${all.at(-1)}`,
    standIn: first,
    read: (value) => all.find((candidate) => candidate === value),
  };
}

export const flag: Kind<boolean> = {
  expects: "true or false",
  standIn: false,
  read(value, isText) {
    if (isText && (value === "true" || value === "false")) return value === "true";
    return typeof value === "boolean" ? value : undefined;
  },
};

export const port = whole(0, 65_535, "a port from 0 to 65535 (0: any free one)");

export const host = text("an IP address or a host name, without a port", isHost, { standIn: "127.0.0.1" });

/**
 * A name that clients send in `Host`. Non-ASCII letters are accepted and converted by
 * `domainToASCII`.
 */
export const hostName = text(
  "a host name such as ops.example, without scheme, port, path or wildcard (IP addresses and localhost are always accepted)",
  isHostName,
  { standIn: "localhost" },
);

/** URL under which users reach a listener. */
export const ownUrl = text(
  "a URL that begins with http:// or https://, such as https://ops.example, without a user, query or fragment",
  (value) => isHttpUrl(value) && !/[@?#]/.test(value),
  { standIn: "http://localhost" },
);

export const credits = whole(0, creditsMax, `whole credits from 0 to ${creditsMax}`);

export const price = whole(
  priceRule.min,
  priceRule.max,
  `whole credits per million tokens, from 0 to ${priceRule.max} (whole, so that no cost is ever rounded)`,
);

export const period = text(refillPeriodRule, isRefillPeriod, { standIn: "P1D" });

/** For a time after which something ends. */
export const lifePeriod = text("an ISO 8601 period such as P90D", isPeriod, { standIn: "P90D" });

/** The first one is the default. */
export const alignment = oneOf("opening", "calendar");

export const currency = text(
  "the code of a currency in ISO 4217, such as EUR",
  (value) => Intl.supportedValuesOf("currency").includes(value),
  { standIn: "EUR" },
);

/** Read as millionths. */
const moneyMax = 1_000_000;
export const money: Kind<number> = {
  expects: `an amount above 0, at most ${moneyMax}, with at most six decimals`,
  standIn: 1,
  read(value, isText) {
    const text = typeof value === "number" || isText ? String(value).trim() : "";
    if (!/^\d{1,7}(\.\d{1,6})?$/.test(text)) return undefined;
    const micro = Math.round(Number(text) * 1_000_000);
    return micro > 0 && micro <= moneyMax * 1_000_000 ? micro : undefined;
  },
};

export const timezone = text(timezoneRule, isTimezone, { standIn: "UTC" });

export const filePath = text("a path", (value) => value.trim() !== "" && !value.includes("\0"), {
  standIn: ".",
});

export const httpUrl = text("a URL that begins with http:// or https://", isHttpUrl, {
  standIn: "http://localhost",
});

/** The path is added, as OpenTelemetry specifies. */
export const collectorUrl = text(
  "the URL of an OTLP/HTTP collector, such as http://127.0.0.1:4318 (/v1/traces is added to it)",
  (value) => isHttpUrl(value) && !/\/v1\/traces\/*$/.test(value),
  { standIn: "http://localhost" },
);

export const name = text("a name of 1 to 128 characters", (value) => /^\S(.{0,126}\S)?$/.test(value), {
  standIn: "inkwell",
});

/** Pages of apps have other schemes: `app:`, `capacitor:`, `tauri:`, `chrome-extension:`. */
function isOrigin(value: string): boolean {
  if (isHttpUrl(value)) return new URL(value).origin === value;
  return !/^https?:/i.test(value) && /^[a-z][a-z\d+.-]*:\/\/[\w.-]+(?::\d+)?$/.test(value);
}

export const origin = text(
  'an origin such as https://app.example or app://name (no path, no slash at the end), or "*"',
  (value) => value === "*" || isOrigin(value),
  { standIn: "*" },
);

export const network = text(
  "an IP address or a network such as 10.0.0.0/8",
  (value) => {
    const [address = "", prefix, ...rest] = value.split("/");
    const bits = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1;
    const isPrefix = prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= bits);
    return bits > 0 && isPrefix && rest.length === 0;
  },
  { standIn: "127.0.0.1" },
);

export const operatorToken = text(
  "at least 16 characters without spaces",
  (value) => /^[\x21-\x7e]{16,512}$/.test(value),
  { secret: true, standIn: "x".repeat(16) },
);

export const upstreamKey = text(
  "the key as one word, without spaces",
  (value) => /^[\x21-\x7e]{1,4096}$/.test(value),
  { secret: true },
);

/** Names of models. Those of vendors contain slashes and colons. */
export const modelIdPattern = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$/;
export const modelIdRule = "1 to 128 letters, digits, and . _ : / @ + -, the first a letter or a digit";

export function isLoopback(address: string): boolean {
  return address === "localhost" || address === "::1" || (isIP(address) === 4 && address.startsWith("127."));
}

function isHost(value: string): boolean {
  // A text of digits and dots is an IP address: an invalid one must not be looked up as a name.
  const isName = /^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/.test(value) && !/^[\d.]+$/.test(value);
  return isIP(value) !== 0 || isName;
}

/** Underscores are not allowed in host names, but names of containers have them. */
function isHostName(value: string): boolean {
  const name = domainToASCII(value).replace(/\.$/, "");
  const hasOtherParts = /[\s%/:?#@\\[\]*]/.test(value);
  const labels = name.split(".");
  const isName = name.length <= 253 && labels.every((label) => /^[a-z\d_-]{1,63}$/.test(label));
  return isName && !hasOtherParts && isIP(name) === 0;
}

function isHttpUrl(value: string): boolean {
  return /^https?:\/\//.test(value) && URL.canParse(value);
}
